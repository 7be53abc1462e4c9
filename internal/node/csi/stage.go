// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stage stages the volume for all pods of the node, if its driver has that step. The volume must be attached.
func (m *Manager) Stage(ctx context.Context, v *Volume) error {
	if v.Inline != nil {
		return nil
	}
	defer m.lock(v.key())()
	d, err := m.drivers.get(v.Driver())
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	stages, err := d.stages(ctx)
	if err != nil || !stages {
		return err
	}
	p := m.place(v)
	path := p.staging(v.Driver(), v.Handle())
	if m.isStaged(path) {
		return nil
	}
	request, err := m.stageRequest(ctx, d, v, path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	r := record{Handle: v.Handle(), Driver: v.Driver(), Asked: yes}
	if err := r.write(p.stagingRecord(v.Driver(), v.Handle())); err != nil {
		return err
	}
	if _, err := d.node.NodeStageVolume(ctx, request); err != nil {
		return m.stageFailed(p, v, err)
	}
	m.setStaged(path, true)
	return nil
}

func (m *Manager) stageRequest(ctx context.Context, d *driver, v *Volume, path string) (*csi.NodeStageVolumeRequest, error) {
	secrets := map[string]string{}
	if ref := v.PV.Spec.CSI.NodeStageSecretRef; ref != nil {
		var err error
		if secrets, err = m.secret(ctx, ref); err != nil {
			return nil, fmt.Errorf("fetching NodeStageSecretRef %s/%s failed: %w", ref.Namespace, ref.Name, err)
		}
	}
	publishContext, err := m.publishContext(ctx, v)
	if err != nil {
		return nil, err
	}
	withGroup, err := d.setsGroup(ctx)
	if err != nil {
		return nil, err
	}
	capability, err := d.capability(ctx, v, withGroup)
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeRequest{
		VolumeId: v.Handle(), StagingTargetPath: path, VolumeCapability: capability,
		PublishContext: publishContext, VolumeContext: v.attributes(), Secrets: secrets,
	}, nil
}

// stageFailed removes the node's record after a refusal, unless other pods use the volume: then it was staged
// before.
func (m *Manager) stageFailed(p place, v *Volume, cause error) error {
	if !isFinal(cause) {
		return cause
	}
	others, err := m.others(p.record(), v.key())
	if err != nil || len(others) > 0 {
		return errors.Join(cause, err)
	}
	return errors.Join(cause, m.forgetStaging(p, v.Driver(), v.Handle()))
}

func (m *Manager) isStaged(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.staged[path]
}

func (m *Manager) setStaged(path string, staged bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if staged {
		m.staged[path] = true
	} else {
		delete(m.staged, path)
	}
}

// secret returns the content of a secret as CSI has it.
func (m *Manager) secret(ctx context.Context, ref *v1.SecretReference) (map[string]string, error) {
	secret, err := m.options.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: failed to find the secret %s in the namespace %s with error: %w", ref.Name, ref.Namespace, err)
	}
	content := map[string]string{}
	for key, value := range secret.Data {
		content[key] = string(value)
	}
	return content, nil
}
