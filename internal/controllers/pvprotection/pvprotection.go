// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pvprotection keeps a PersistentVolume that is deleted as long as it is bound
// to a claim.
package pvprotection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/protection"
)

// Name is the controller's identity.
const Name = "pv-protection-controller"

const finalizer = "kubernetes.io/pv-protection"

// Add registers the controller: woken by volumes.
func Add(env control.Env) error {
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		For(&corev1.PersistentVolume{}).
		Complete(newKeeper(env))
}

func newKeeper(env control.Env) *protection.Keeper[*corev1.PersistentVolume] {
	return &protection.Keeper[*corev1.PersistentVolume]{
		Client: env.Client, Finalizer: finalizer,
		New: func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		Used: func(_ context.Context, v *corev1.PersistentVolume) (bool, error) {
			return v.Status.Phase == corev1.VolumeBound, nil
		},
	}
}
