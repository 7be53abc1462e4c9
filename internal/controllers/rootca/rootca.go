// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootca publishes the cluster's CA in a ConfigMap kube-root-ca.crt in
// every namespace, from where it is projected into pods beside their token.
package rootca

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/namespaced"
	"github.com/kindred-project/kindred/internal/controllers/owned"
)

// Name is the controller's identity.
const Name = "root-ca-cert-publisher"

const (
	workers       = 4
	configMapName = "kube-root-ca.crt"
	dataKey       = "ca.crt"

	descriptionKey = "kubernetes.io/description"
	description    = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// Add returns the function that registers the controller for the given bundle
// of PEM certificates: woken by namespaces, and when a ConfigMap is lost or
// changed.
func Add(ca []byte) func(control.Env) error {
	return func(env control.Env) error {
		r := &reconciler{client: env.Client, ca: string(ca)}
		return ctrl.NewControllerManagedBy(env.Manager).
			Named(Name).
			WithOptions(env.Options(workers)).
			For(&corev1.Namespace{}, builder.WithPredicates(namespaced.Arrivals())).
			Watches(&corev1.ConfigMap{}, namespaced.Wake(), builder.WithPredicates(namespaced.Changes(configMapName))).
			Complete(r)
	}
}

type reconciler struct {
	client client.Client
	ca     string
}

// Reconcile creates or mends the ConfigMap of one namespace.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	active, err := namespaced.Active(ctx, r.client, req.Name)
	if err != nil || !active {
		return ctrl.Result{}, err
	}
	current := &corev1.ConfigMap{}
	err = r.client.Get(ctx, client.ObjectKey{Namespace: req.Name, Name: configMapName}, current)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.create(ctx, req.Name)
	}
	data := map[string]string{dataKey: r.ca}
	if err != nil || (maps.Equal(current.Data, data) && current.Annotations[descriptionKey] != "") {
		return ctrl.Result{}, err
	}
	mended := current.DeepCopy()
	mended.Data = data
	metav1.SetMetaDataAnnotation(&mended.ObjectMeta, descriptionKey, description)
	return ctrl.Result{}, owned.IgnoreStale(r.client.Update(ctx, mended))
}

func (r *reconciler) create(ctx context.Context, namespace string) error {
	err := r.client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        configMapName,
			Annotations: map[string]string{descriptionKey: description},
		},
		Data: map[string]string{dataKey: r.ca},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return owned.IgnoreStale(err)
}
