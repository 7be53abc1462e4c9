// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capublisher publishes the CA bundle by which pods verify the API server: in a
// ConfigMap in every namespace, and in a ClusterTrustBundle.
package capublisher

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/namespaced"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// ConfigMapName is the identity of the controller that publishes ConfigMaps.
const ConfigMapName = "root-ca-cert-publisher"

const (
	workers       = 4
	configMapName = "kube-root-ca.crt"
	dataKey       = "ca.crt"

	descriptionKey = "kubernetes.io/description"
	description    = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// AddConfigMaps returns the function that registers the controller which publishes the
// given PEM certificates in the ConfigMap kube-root-ca.crt of every namespace, from where
// they are projected into pods with their token. It watches namespaces, and these
// ConfigMaps for deletions and changes.
func AddConfigMaps(ca []byte) func(control.Env) error {
	return func(env control.Env) error {
		r := &configMapReconciler{client: env.Client, ca: string(ca)}
		return ctrl.NewControllerManagedBy(env.Manager).
			Named(ConfigMapName).
			WithOptions(env.Options(workers)).
			For(&corev1.Namespace{}, builder.WithPredicates(namespaced.Activated())).
			Watches(&corev1.ConfigMap{}, namespaced.ToNamespace(), builder.WithPredicates(namespaced.Changed(configMapName))).
			Complete(r)
	}
}

type configMapReconciler struct {
	client client.Client
	ca     string
}

// Reconcile creates or repairs the ConfigMap of one namespace.
func (r *configMapReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
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
	repaired := current.DeepCopy()
	repaired.Data = data
	metav1.SetMetaDataAnnotation(&repaired.ObjectMeta, descriptionKey, description)
	return ctrl.Result{}, owned.IgnoreStale(r.client.Update(ctx, repaired))
}

func (r *configMapReconciler) create(ctx context.Context, namespace string) error {
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
