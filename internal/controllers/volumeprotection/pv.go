// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// VolumeName is the identity of the PersistentVolume controller.
const VolumeName = "pv-protection-controller"

const volumeFinalizer = "kubernetes.io/pv-protection"

// AddVolumes registers the controller that protects a PersistentVolume while it is bound. Its phase
// changes when the claim is deleted.
func AddVolumes(env control.Env) error {
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(VolumeName).
		WithOptions(env.Options(1)).
		For(&corev1.PersistentVolume{}).
		Complete(newVolumeProtector(env))
}

func newVolumeProtector(env control.Env) *protector[*corev1.PersistentVolume] {
	return &protector[*corev1.PersistentVolume]{
		client: env.Client, finalizer: volumeFinalizer,
		newObject: func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		isUsed: func(_ context.Context, v *corev1.PersistentVolume) (bool, error) {
			return v.Status.Phase == corev1.VolumeBound, nil
		},
	}
}
