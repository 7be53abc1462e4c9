// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/csi"
)

// republishPeriod is the time after which a volume is published again if its driver wants that, and after
// which a claim is read again to find out whether it was expanded. It is the kubelet's period of syncing pods.
const republishPeriod = time.Minute

// csiVolume is a volume of a CSI driver.
type csiVolume struct {
	manager *csi.Manager
	volume  *csi.Volume
	again   func(after time.Duration) time.Time
}

func (m *Manager) csiVolume(v *csi.Volume) volume {
	mounted := csiVolume{manager: m.csi, volume: v, again: m.after}
	if v.PV != nil && (bound{pv: v.PV}).isBlock() {
		return csiDevice{mounted}
	}
	return mounted
}

// after returns the time after a duration.
func (m *Manager) after(d time.Duration) time.Time { return m.options.Clock.Now().Add(d) }

func (v csiVolume) path() string   { return v.manager.Path(v.volume) }
func (v csiVolume) readOnly() bool { return v.volume.IsReadOnly() }

// attach implements attachable. A volume that is published needs no driver.
func (v csiVolume) attach(ctx context.Context, deadline time.Time) error {
	if v.manager.IsPublished(v.volume) {
		return nil
	}
	err := v.manager.AwaitAttach(ctx, v.volume, deadline)
	if isUnattached(err) || ctx.Err() != nil {
		err = waiting{err}
	}
	return mountStep("WaitForAttach", err)
}

// isUnattached reports whether an error is that a volume was not attached in time.
func isUnattached(err error) bool {
	return errors.Is(err, csi.ErrNotAttached) || errors.Is(err, csi.ErrTooMany)
}

func (v csiVolume) prepare(ctx context.Context) (time.Time, error) {
	if !v.manager.IsPublished(v.volume) {
		if err := v.manager.Stage(ctx, v.volume); err != nil {
			return time.Time{}, mountStep("MountDevice", err)
		}
	}
	if err := v.manager.Publish(ctx, v.volume); err != nil {
		return time.Time{}, mountStep("SetUp", err)
	}
	if v.manager.Republishes(ctx, v.volume.Driver()) {
		return v.again(republishPeriod), nil
	}
	return time.Time{}, nil
}

func (v csiVolume) expand(ctx context.Context, size int64) (csi.Outcome, error) {
	return v.manager.Expand(ctx, v.volume, size)
}

// csiDevice is a volume of a CSI driver that containers get as a device.
type csiDevice struct{ csiVolume }

func (v csiDevice) path() string { return "" }

func (v csiDevice) attach(ctx context.Context, deadline time.Time) error {
	return asMapStep(v.csiVolume.attach(ctx, deadline))
}

func (v csiDevice) prepare(ctx context.Context) (time.Time, error) {
	again, err := v.csiVolume.prepare(ctx)
	return again, asMapStep(err)
}

// asMapStep returns the failure of a step of a device.
func asMapStep(err error) error {
	var step *stepError
	if !errors.As(err, &step) {
		return err
	}
	names := map[string]string{
		"MountVolume.WaitForAttach failed": "WaitForAttach",
		"MountVolume.MountDevice failed":   "SetUpDevice",
		"MountVolume.SetUp failed":         "MapPodDevice",
	}
	return mapStep(names[step.step], step.err)
}

// device returns where the driver has published the device.
func (v csiDevice) device() (string, error) { return filepath.EvalSymlinks(v.manager.Path(v.volume)) }

// refer records that the pod uses a volume of a CSI driver, before any of its volumes is set up: volumes are
// attached concurrently.
func (m *Manager) refer(ctx context.Context, pod *v1.Pod, spec *v1.Volume) error {
	v := m.csiOf(pod, spec)
	if v == nil {
		return nil
	}
	if m.csi == nil {
		return unsupported(v.Name, v1.VolumeSource{CSI: &v1.CSIVolumeSource{}})
	}
	err := m.csi.Refer(ctx, v)
	if v.PV != nil && (bound{pv: v.PV}).isBlock() {
		return mapStep("SetUpDevice", err)
	}
	return mountStep("SetUp", err)
}

// csiOf returns the volume if it is one of a CSI driver, or nil.
func (m *Manager) csiOf(pod *v1.Pod, spec *v1.Volume) *csi.Volume {
	if spec.CSI != nil {
		return &csi.Volume{Pod: pod, Name: spec.Name, Inline: spec.CSI}
	}
	b, ok := m.state(pod.UID).boundTo(spec.Name)
	if !ok || b.pv.Spec.CSI == nil {
		return nil
	}
	return &csi.Volume{Pod: pod, Name: b.pv.Name, PV: b.pv, ReadOnly: b.readOnly}
}

// csiToken returns a token for a driver. It is called with the pod's lock held.
func (m *Manager) csiToken(ctx context.Context, pod *v1.Pod, request storagev1.TokenRequest) (authenticationv1.TokenRequestStatus, error) {
	t, err := m.token(ctx, pod, &v1.ServiceAccountTokenProjection{Audience: request.Audience, ExpirationSeconds: request.ExpirationSeconds})
	return authenticationv1.TokenRequestStatus{Token: t.value, ExpirationTimestamp: metav1.NewTime(t.expires)}, err
}

// CSI returns the manager of volumes of CSI drivers, or nil.
func (m *Manager) CSI() *csi.Manager { return m.csi }

// teardownCSI tears down the volumes of CSI drivers of a pod.
func (m *Manager) teardownCSI(ctx context.Context, uid types.UID) error {
	layout := m.options.Layout
	teardown := func(block bool) func(name string) error {
		return func(name string) error {
			if m.csi == nil {
				return errors.New("the node has no CSI drivers")
			}
			return m.csi.Teardown(ctx, uid, name, block)
		}
	}
	err := errors.Join(
		eachEntry(filepath.Join(layout.VolumeDevicesDir(uid), csi.Dir), teardown(true)),
		eachEntry(filepath.Join(layout.VolumesDir(uid), csi.Dir), teardown(false)),
	)
	if err == nil && m.csi != nil {
		m.csi.Released(uid)
	}
	return err
}
