// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Outcome is how an expansion ended.
type Outcome int

// The outcomes of an expansion.
const (
	// Expanded: the volume has the new size.
	Expanded Outcome = iota
	// Failed: the expansion may succeed later.
	Failed
	// InUse: the driver cannot expand the volume while it is used.
	InUse
	// Infeasible: the driver cannot expand the volume to this size.
	Infeasible
	// Unsupported: the driver does not expand volumes on nodes.
	Unsupported
)

// Expand expands a published volume, and its file system, to a size in bytes.
func (m *Manager) Expand(ctx context.Context, v *Volume, size int64) (Outcome, error) {
	defer m.lock(v.key())()
	d, err := m.drivers.get(v.Driver())
	if err != nil {
		return Failed, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	expands, err := d.can(ctx, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	if err != nil {
		return Failed, fmt.Errorf("Expander.NodeExpand failed to check if node supports expansion : %w", err)
	}
	if !expands {
		return Unsupported, fmt.Errorf("NodeExpand is not supported by the CSI driver %s", v.Driver())
	}
	request, err := m.expandRequest(ctx, d, v, size)
	if err != nil {
		return Failed, err
	}
	_, err = d.node.NodeExpandVolume(ctx, request)
	switch {
	case err == nil:
		return Expanded, nil
	case status.Code(err) == codes.FailedPrecondition:
		return InUse, fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
	case isInfeasible(err):
		return Infeasible, fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err)
	}
	return Failed, fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
}

func (m *Manager) expandRequest(ctx context.Context, d *driver, v *Volume, size int64) (*csi.NodeExpandVolumeRequest, error) {
	p := m.place(v)
	request := &csi.NodeExpandVolumeRequest{
		VolumeId: v.Handle(), VolumePath: p.target(), CapacityRange: &csi.CapacityRange{RequiredBytes: size},
	}
	stages, err := d.stages(ctx)
	if err != nil {
		return nil, err
	}
	if stages {
		request.StagingTargetPath = p.staging(v.Driver(), v.Handle())
	}
	if ref := v.PV.Spec.CSI.NodeExpandSecretRef; ref != nil {
		if request.Secrets, err = m.secret(ctx, ref); err != nil {
			return nil, fmt.Errorf("expander.NodeExpand failed to get NodeExpandSecretRef %s/%s: %w", ref.Namespace, ref.Name, err)
		}
	}
	request.VolumeCapability, err = d.capability(ctx, v, false)
	return request, err
}
