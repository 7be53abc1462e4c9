// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// callLimit is the time that a driver has for one call, upstream's.
const callLimit = 2 * time.Minute

// driver is a registered driver.
type driver struct {
	name     string
	endpoint string
	version  *utilversion.Version
	conn     *grpc.ClientConn
	node     csi.NodeClient

	mu           sync.Mutex
	capabilities map[csi.NodeServiceCapability_RPC_Type]bool // nil until they were read
}

// drivers are the registered drivers by name.
type drivers struct {
	intercept func(driver string) grpc.UnaryClientInterceptor // nil if nothing counts calls

	mu   sync.Mutex
	byID map[string]*driver
}

// get returns a registered driver.
func (d *drivers) get(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.byID[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// all returns all registered drivers.
func (d *drivers) all() []*driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*driver
	for _, one := range d.byID {
		all = append(all, one)
	}
	return all
}

// check returns why a driver cannot be registered. A driver with the same endpoint replaces its predecessor.
func (d *drivers) check(name, endpoint string, versions []string) (*utilversion.Version, error) {
	if len(versions) == 0 {
		return nil, fmt.Errorf("CSI driver %q supports no version of CSI", name)
	}
	version, err := utilversion.HighestSupportedVersion(versions)
	if err != nil {
		return nil, fmt.Errorf("CSI driver %q: none of the versions %q is supported: %w", name, versions, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.byID[name]
	if have != nil && have.endpoint != endpoint && !have.version.LessThan(version) {
		return nil, fmt.Errorf("CSI driver %q is already registered with version %s at %s", name, have.version, have.endpoint)
	}
	return version, nil
}

// add registers a driver. The connection is made when it is first used, and again whenever it fails.
func (d *drivers) add(name, endpoint string, version *utilversion.Version) (*driver, error) {
	options := []grpc.DialOption{grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(insecure.NewCredentials())}
	if d.intercept != nil {
		options = append(options, grpc.WithUnaryInterceptor(d.intercept(name)))
	}
	conn, err := grpc.NewClient("unix:"+endpoint, options...)
	if err != nil {
		return nil, err
	}
	added := &driver{name: name, endpoint: endpoint, version: version, conn: conn, node: csi.NewNodeClient(conn)}
	d.mu.Lock()
	before := d.byID[name]
	d.byID[name] = added
	d.mu.Unlock()
	if before != nil {
		_ = before.conn.Close()
	}
	return added, nil
}

// remove removes a driver, unless another endpoint has replaced it.
func (d *drivers) remove(name, endpoint string) bool {
	d.mu.Lock()
	have := d.byID[name]
	if have == nil || have.endpoint != endpoint {
		d.mu.Unlock()
		return false
	}
	delete(d.byID, name)
	d.mu.Unlock()
	_ = have.conn.Close()
	return true
}

// can reports whether the driver's node service has a capability.
func (d *driver) can(ctx context.Context, capability csi.NodeServiceCapability_RPC_Type) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.capabilities != nil {
		return d.capabilities[capability], nil
	}
	response, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return false, err
	}
	d.capabilities = map[csi.NodeServiceCapability_RPC_Type]bool{}
	for _, c := range response.GetCapabilities() {
		d.capabilities[c.GetRpc().GetType()] = true
	}
	return d.capabilities[capability], nil
}

func (d *driver) stages(ctx context.Context) (bool, error) {
	return d.can(ctx, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

func (d *driver) setsGroup(ctx context.Context) (bool, error) {
	return d.can(ctx, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
}

// isFinal reports whether a driver has refused a call, so that nothing of it is left and nothing is going on.
func isFinal(err error) bool {
	state, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch state.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// isInfeasible reports whether a driver says that an expansion cannot succeed.
func isInfeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}
