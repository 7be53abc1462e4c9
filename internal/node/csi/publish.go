// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Publish publishes the volume to the pod. A volume that is published already is published again only if the
// driver wants that. The volume must be staged.
func (m *Manager) Publish(ctx context.Context, v *Volume) error {
	defer m.lock(v.key())()
	s, err := m.settings(ctx, v.Driver())
	if err != nil {
		return err
	}
	p := m.place(v)
	r, err := readRecord(p.record())
	if err != nil {
		return err
	}
	published := r.Done == yes && isPublished(p)
	if published && !s.republish {
		return nil
	}
	d, err := m.drivers.get(v.Driver())
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	request, err := m.publishRequest(ctx, d, v, s, p)
	if err != nil {
		return err
	}
	if !published {
		r.Asked, r.Done = yes, ""
		if err := errors.Join(os.MkdirAll(filepath.Dir(p.target()), 0o750), r.write(p.record())); err != nil {
			return err
		}
	}
	if _, err := d.node.NodePublishVolume(ctx, request); err != nil {
		if published || !isFinal(err) {
			return err
		}
		// The driver has refused. Its remains are removed, so that the pod can be deleted without it.
		r.Asked = ""
		return errors.Join(err, removeEmpty(p.target()), r.write(p.record()))
	}
	if err := m.own(ctx, d, v, s, p.target()); err != nil {
		return err
	}
	if published {
		return nil
	}
	r.Done = yes
	return r.write(p.record())
}

// IsPublished reports whether the volume is published to the pod.
func (m *Manager) IsPublished(v *Volume) bool {
	p := m.place(v)
	r, err := readRecord(p.record())
	return err == nil && r.Done == yes && isPublished(p)
}

// isPublished reports whether a volume that was published is still there: a restart of the machine removes
// all mounts.
func isPublished(p place) bool {
	if p.block {
		_, err := os.Lstat(p.target())
		return err == nil
	}
	mounted, err := mountinfo.Mounted(p.target())
	return err == nil && mounted
}

// own gives the files of the volume to the pod's fsGroup, unless the driver does.
func (m *Manager) own(ctx context.Context, d *driver, v *Volume, s settings, dir string) error {
	if v.isBlock() || !v.wantsGroup(s.groupPolicy) {
		return nil
	}
	itself, err := d.setsGroup(ctx)
	if err != nil || itself {
		return err
	}
	if err := m.options.Own(v.Pod, dir); err != nil {
		return fmt.Errorf("applyFSGroup failed for vol %s: %w", v.Handle(), err)
	}
	return nil
}

func (m *Manager) publishRequest(ctx context.Context, d *driver, v *Volume, s settings, p place) (*csi.NodePublishVolumeRequest, error) {
	request := &csi.NodePublishVolumeRequest{
		VolumeId: v.Handle(), TargetPath: p.target(), Readonly: v.IsReadOnly(),
		VolumeContext: maps.Clone(v.attributes()), Secrets: map[string]string{},
	}
	if request.VolumeContext == nil {
		request.VolumeContext = map[string]string{}
	}
	var err error
	if ref := v.publishSecret(); ref != nil {
		if request.Secrets, err = m.secret(ctx, ref); err != nil {
			return nil, fmt.Errorf("fetching NodePublishSecretRef %s/%s failed: %w", ref.Namespace, ref.Name, err)
		}
	}
	stages, err := d.stages(ctx)
	if err != nil {
		return nil, err
	}
	if stages && v.Inline == nil {
		request.StagingTargetPath = p.staging(v.Driver(), v.Handle())
	}
	if request.PublishContext, err = m.publishContext(ctx, v); err != nil {
		return nil, err
	}
	if s.podInfo {
		maps.Copy(request.VolumeContext, podInfo(v))
	}
	if err := m.addTokens(ctx, v, s, request); err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: %w", err)
	}
	withGroup, err := d.setsGroup(ctx)
	if err != nil {
		return nil, err
	}
	request.VolumeCapability, err = d.capability(ctx, v, withGroup)
	return request, err
}

// podInfo is what a driver with podInfoOnMount gets to know of the pod.
func podInfo(v *Volume) map[string]string {
	const prefix = "csi.storage.k8s.io/"
	return map[string]string{
		prefix + "pod.name":            v.Pod.Name,
		prefix + "pod.namespace":       v.Pod.Namespace,
		prefix + "pod.uid":             string(v.Pod.UID),
		prefix + "serviceAccount.name": v.Pod.Spec.ServiceAccountName,
		prefix + "ephemeral":           strconv.FormatBool(v.lifecycle() == storagev1.VolumeLifecycleEphemeral),
	}
}

// addTokens adds the service account tokens that the driver wants.
func (m *Manager) addTokens(ctx context.Context, v *Volume, s settings, request *csi.NodePublishVolumeRequest) error {
	if len(s.tokens) == 0 || v.isBlock() {
		return nil
	}
	tokens := map[string]authenticationv1.TokenRequestStatus{}
	for _, wanted := range s.tokens {
		token, err := m.options.Token(ctx, v.Pod, wanted)
		if err != nil {
			return err
		}
		tokens[wanted.Audience] = token
	}
	data, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	const key = "csi.storage.k8s.io/serviceAccount.tokens"
	if s.tokensInSecrets {
		request.Secrets[key] = string(data)
	} else {
		request.VolumeContext[key] = string(data)
	}
	return nil
}
