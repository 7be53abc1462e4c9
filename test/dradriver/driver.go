// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// driver prepares claims.
type driver struct {
	name, node, data, cdi string
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		if err := d.note("prepare " + claim.Name); err != nil {
			return nil, err
		}
		if err := d.wait(ctx); err != nil {
			return nil, err
		}
		prepared, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: prepared, Err: err}
	}
	return results, nil
}

// wait returns once there is no file hold.
func (d *driver) wait(ctx context.Context) error {
	for {
		if _, err := os.Stat(filepath.Join(d.data, "hold")); err != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// prepare writes the CDI file of a claim.
func (d *driver) prepare(claim *resourcev1.ResourceClaim) ([]kubeletplugin.Device, error) {
	spec := cdi.Spec{Version: "0.6.0", Kind: d.name + "/gpu"}
	var prepared []kubeletplugin.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.name {
			continue
		}
		name := string(claim.UID) + "-" + result.Device
		// The name is one that a shell can print.
		env := []string{"GPU_" + strings.ReplaceAll(result.Request, "-", "_") + "=" + result.Device}
		spec.Devices = append(spec.Devices, cdi.Device{Name: name, ContainerEdits: cdi.ContainerEdits{Env: env}})
		prepared = append(prepared, kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
			CDIDeviceIDs: []string{spec.Kind + "=" + name},
		})
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	path := d.cdiFile(claim.UID)
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return nil, err
	}
	return prepared, os.Rename(path+".new", path)
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.cdiFile(claim.UID))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = errors.Join(err, d.note("unprepare "+claim.Name))
	}
	return results, nil
}

func (d *driver) cdiFile(claim types.UID) string {
	return filepath.Join(d.cdi, d.name+"-"+string(claim)+".json")
}

// HandleError implements kubeletplugin.DRAPlugin.
func (d *driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message+":", err)
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin. The devices are unhealthy while there is a file
// unhealthy.
func (d *driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		health, message := kubeletplugin.HealthStatusHealthy, ""
		if text, err := os.ReadFile(filepath.Join(d.data, "unhealthy")); err == nil {
			health, message = kubeletplugin.HealthStatusUnhealthy, string(text)
		}
		var report kubeletplugin.DeviceHealthReport
		for _, name := range devices {
			report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{
				PoolName: d.node, DeviceName: name, Health: health, Message: message, LastUpdated: time.Now(),
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}
