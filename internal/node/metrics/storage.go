// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	compbasemetrics "k8s.io/component-base/metrics"
)

var storageBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// storage are the metrics of volumes.
type storage struct {
	volumeOperations, csiCalls                *compbasemetrics.HistogramVec
	imageVolumes, imageMounts, imageMountErrs *compbasemetrics.Counter
}

func (m *Metrics) addStorage() {
	m.volumeOperations = histogramsOf(m.registry, "", "storage_operation_duration_seconds", "Duration of operations on volumes.", storageBuckets,
		"volume_plugin", "operation_name", "status", "migrated")
	m.csiCalls = histogramsOf(m.registry, "csi", "operations_seconds", "Duration of calls of CSI drivers.", storageBuckets,
		"driver_name", "method_name", "grpc_status_code", "migrated")
	m.imageVolumes = counter(m.registry, "image_volume_requested_total", "Number of image volumes that containers asked for.")
	m.imageMounts = counter(m.registry, "image_volume_mounted_succeed_total", "Number of image volumes that containers got.")
	m.imageMountErrs = counter(m.registry, "image_volume_mounted_errors_total", "Number of image volumes that containers could not get.")
}

// VolumeOperation counts an operation, such as "volume_mount", on a volume of a plugin, such as "kubernetes.io/secret".
func (m *Metrics) VolumeOperation(plugin, operation string, took time.Duration, err error) {
	if m == nil {
		return
	}
	result := "success"
	if err != nil {
		result = "fail-unknown"
	}
	m.volumeOperations.WithLabelValues(plugin, operation, result, "false").Observe(took.Seconds())
}

// CSICalls counts the calls of a CSI driver, by the full names of the methods.
func (m *Metrics) CSICalls(driver string) grpc.UnaryClientInterceptor {
	return m.intercept(func(method string, took time.Duration, err error) {
		m.csiCalls.WithLabelValues(driver, method, codeOf(err), "false").Observe(took.Seconds())
	})
}

// intercept returns an interceptor that reports calls.
func (m *Metrics) intercept(report func(method string, took time.Duration, err error)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		begin := m.clock.Now()
		err := invoke(ctx, method, request, reply, conn, options...)
		report(method, m.clock.Since(begin), err)
		return err
	}
}

// codeOf returns the label of a call's result.
func codeOf(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	s, ok := status.FromError(err)
	if !ok {
		return "unknown-non-grpc"
	}
	return s.Code().String()
}

// ImageVolumes counts the image volumes of a container that starts. err is why the container cannot get them.
func (m *Metrics) ImageVolumes(count int, err error) {
	if m == nil || count == 0 {
		return
	}
	m.imageVolumes.Add(float64(count))
	if err != nil {
		m.imageMountErrs.Add(float64(count))
		return
	}
	m.imageMounts.Add(float64(count))
}
