// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// AttachLimit is the time for which an attempt to set up a pod's volumes waits for their attachment. It is
// upstream's.
const AttachLimit = 2*time.Minute + 3*time.Second

// ErrNotAttached is returned for a volume that is not attached yet. Its progress is reported elsewhere.
var ErrNotAttached = errors.New("timed out waiting for the volume to be attached")

// ErrTooMany is returned for a volume that is not attached because the node has as many volumes as its driver
// can attach to it (KEP-4876).
var ErrTooMany = errors.New("the driver can attach no further volume to the node")

// AwaitAttach waits until the volume is attached, if its driver needs that, but not after a deadline. The volume
// must be in the Node's volumesInUse as well: otherwise it may be detached at any time.
func (m *Manager) AwaitAttach(ctx context.Context, v *Volume, deadline time.Time) error {
	attach, err := m.mustAttach(ctx, v)
	if err != nil || !attach {
		return err
	}
	limit := m.options.Clock.NewTimer(deadline.Sub(m.options.Clock.Now()))
	defer limit.Stop()
	for {
		changed := m.changes()
		if isAttached(m.options.Node(), uniqueName(v.key())) {
			break
		}
		select {
		case <-changed:
		case <-limit.C():
			return m.whyNotAttached(ctx, v)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err = m.attachment(ctx, v)
	return err
}

// whyNotAttached returns ErrTooMany if the driver has reported that, and ErrNotAttached otherwise. As in
// upstream, a driver reports it only if its CSIDriver says how often the node's limit is to be updated. The
// limit is then updated at once, so that the scheduler does not choose the node again.
func (m *Manager) whyNotAttached(ctx context.Context, v *Volume) error {
	s, err := m.settings(ctx, v.Driver())
	if err != nil || s.updatePeriod <= 0 {
		return ErrNotAttached
	}
	name := v.AttachmentName(m.options.Node().Name)
	attachment, err := m.options.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	if err != nil || !isExhausted(attachment.Status.AttachError) {
		return ErrNotAttached
	}
	m.updateCount(ctx, v.Driver())
	return ErrTooMany
}

func isExhausted(failure *storagev1.VolumeError) bool {
	return failure != nil && failure.ErrorCode != nil && *failure.ErrorCode == int32(codes.ResourceExhausted)
}

func (m *Manager) mustAttach(ctx context.Context, v *Volume) (bool, error) {
	if v.Inline != nil {
		return false, nil
	}
	s, err := m.settings(ctx, v.Driver())
	return s.attach, err
}

// isAttached reports whether the Node's status says that the volume is attached, and that it must stay so.
func isAttached(node *v1.Node, name v1.UniqueVolumeName) bool {
	return slices.Contains(node.Status.VolumesInUse, name) &&
		slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name })
}

// attachment returns the VolumeAttachment of an attached volume.
func (m *Manager) attachment(ctx context.Context, v *Volume) (*storagev1.VolumeAttachment, error) {
	name := v.AttachmentName(m.options.Node().Name)
	attachment, err := m.options.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("volume %v has GET error for volume attachment %v: %w", v.Handle(), name, err)
	}
	switch failure := attachment.Status.AttachError; {
	case attachment.DeletionTimestamp != nil:
		return nil, errors.New("volume attachment is being deleted")
	case attachment.Status.Attached:
		return attachment, nil
	case failure != nil:
		return nil, errors.New(failure.Message)
	}
	return nil, fmt.Errorf("volume %v is not attached for volume attachment %v", v.Handle(), name)
}

// updateCount asks a driver how many volumes the node can have (KEP-4876).
func (m *Manager) updateCount(ctx context.Context, driver string) {
	if err := m.refreshInfo(ctx, driver); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot update the number of volumes that the node can have", "driver", driver)
	}
}

// publishContext returns what the attachment has for the driver's node service.
func (m *Manager) publishContext(ctx context.Context, v *Volume) (map[string]string, error) {
	attach, err := m.mustAttach(ctx, v)
	if err != nil || !attach {
		return nil, err
	}
	attachment, err := m.attachment(ctx, v)
	if err != nil {
		return nil, err
	}
	return attachment.Status.AttachmentMetadata, nil
}
