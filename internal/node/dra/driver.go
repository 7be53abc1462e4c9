// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	"k8s.io/utils/clock"
)

// callLimit is the time that a driver has for one call, upstream's.
const callLimit = 45 * time.Second

// services are the supported versions of the drivers' service, the newest first.
var services = []string{drapb.DRAPluginService, drapbv1beta1.DRAPluginService}

// driver is a registered instance of a driver.
type driver struct {
	name, endpoint string
	conn           *grpc.ClientConn
	node           drapb.DRAPluginClient
	health         healthv1.DRAResourceHealthClient // nil if the driver does not report health
	ctx            context.Context                  // ends, with the connection, when the driver is removed
	stop           context.CancelFunc

	connected bool // guarded by drivers.mu
}

// drivers are the registered drivers. There may be several instances of one, while it is updated.
type drivers struct {
	ctx   context.Context
	clock clock.WithTicker
	wipe  func(ctx context.Context, driver string)

	mu     sync.Mutex
	byName map[string][]*driver          // the newest last
	wipes  map[string]context.CancelFunc // by the driver whose ResourceSlices are to be removed
}

// chooseService returns the newest version of the drivers' service that a driver supports.
func chooseService(supported []string) (string, error) {
	if len(supported) == 0 {
		return "", errors.New("empty list of supported gRPC services (aka supported versions)")
	}
	for _, service := range services {
		if slices.Contains(supported, service) {
			return service, nil
		}
	}
	return "", fmt.Errorf("none of services supported by the plugin (%q) are supported by the kubelet (%q)", supported, services)
}

// connect returns a driver whose connection is made in the background. intercept may be nil.
func connect(name, endpoint string, supported []string, intercept func(driver string) grpc.UnaryClientInterceptor) (*driver, error) {
	service, err := chooseService(supported)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(insecure.NewCredentials())}
	if intercept != nil {
		options = append(options, grpc.WithUnaryInterceptor(intercept(name)))
	}
	conn, err := grpc.NewClient("unix:"+endpoint, options...)
	if err != nil {
		return nil, fmt.Errorf("create gRPC connection to DRA driver %s plugin at endpoint %s: %w", name, endpoint, err)
	}
	d := &driver{name: name, endpoint: endpoint, conn: conn, node: drapb.NewDRAPluginClient(conn)}
	if service == drapbv1beta1.DRAPluginService {
		d.node = drapbv1beta1.V1Beta1ClientWrapper{DRAPluginClient: drapbv1beta1.NewDRAPluginClient(conn)}
	}
	switch {
	case slices.Contains(supported, healthv1.DRAResourceHealthService):
		d.health = healthv1.NewDRAResourceHealthClient(conn)
	case slices.Contains(supported, healthv1alpha1.DRAResourceHealthService):
		d.health = healthv1.V1Alpha1ClientWrapper{Client: healthv1alpha1.NewDRAResourceHealthClient(conn)}
	}
	return d, nil
}

func (d *driver) prepare(ctx context.Context, claims []*drapb.Claim) (map[string]*drapb.NodePrepareResourceResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	response, err := d.node.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: claims})
	return response.GetClaims(), err
}

func (d *driver) unprepare(ctx context.Context, claims []*drapb.Claim) (map[string]*drapb.NodeUnprepareResourceResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	response, err := d.node.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	return response.GetClaims(), err
}

// get returns the newest instance of a driver, if possible one that is connected.
func (d *drivers) get(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	instances := d.byName[name]
	if len(instances) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", name)
	}
	for _, one := range slices.Backward(instances) {
		if one.connected {
			return one, nil
		}
	}
	return instances[len(instances)-1], nil
}

// add adds an instance, in place of one at the same endpoint, which is another process's by now.
func (d *drivers) add(added *driver) {
	added.ctx, added.stop = context.WithCancel(d.ctx)
	context.AfterFunc(added.ctx, func() { _ = added.conn.Close() })
	d.mu.Lock()
	before := d.take(added.name, added.endpoint)
	d.byName[added.name] = append(d.byName[added.name], added)
	d.check(added.name)
	d.mu.Unlock()
	if before != nil {
		before.stop()
	}
	go d.watch(added)
}

// remove removes an instance and reports whether there was one.
func (d *drivers) remove(name, endpoint string) bool {
	d.mu.Lock()
	removed := d.take(name, endpoint)
	d.check(name)
	d.mu.Unlock()
	if removed == nil {
		return false
	}
	removed.stop()
	return true
}

// take removes an instance from the list and returns it, or nil.
func (d *drivers) take(name, endpoint string) *driver {
	at := slices.IndexFunc(d.byName[name], func(one *driver) bool { return one.endpoint == endpoint })
	if at < 0 {
		return nil
	}
	taken := d.byName[name][at]
	d.byName[name] = slices.Delete(slices.Clone(d.byName[name]), at, at+1)
	if len(d.byName[name]) == 0 {
		delete(d.byName, name)
	}
	return taken
}

func (d *drivers) setConnected(one *driver, connected bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one.connected != connected {
		one.connected = connected
		d.check(one.name)
	}
}

// watch keeps an instance connected, and notes whether it is. gRPC connects when a call is made; a driver
// whose process is gone must be noticed before.
func (d *drivers) watch(one *driver) {
	for one.ctx.Err() == nil {
		state := one.conn.GetState()
		d.setConnected(one, state == connectivity.Ready)
		if state == connectivity.Idle {
			one.conn.Connect()
		}
		one.conn.WaitForStateChange(one.ctx, state)
	}
}
