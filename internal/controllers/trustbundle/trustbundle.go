// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trustbundle publishes the authority of the API server's serving
// certificate in a ClusterTrustBundle of the signer
// kubernetes.io/kube-apiserver-serving, for pods that project it (KEP-3257). The
// bundle's name holds a digest of its content; bundles of that signer with other
// names are former ones, and removed.
package trustbundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/owned"
)

// Name is the controller's identity.
const Name = "kube-apiserver-serving-clustertrustbundle-publisher"

const signer = "kubernetes.io/kube-apiserver-serving"

// Add returns the function that registers the controller for the given bundle of
// PEM certificates: woken once, and by all bundles of the signer.
func Add(ca []byte) func(control.Env) error {
	return func(env control.Env) error {
		once := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{})
			return nil
		})
		wake := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
		return ctrl.NewControllerManagedBy(env.Manager).
			Named(Name).
			WithOptions(env.Options(1)).
			WatchesRawSource(once).
			Watches(&certificatesv1.ClusterTrustBundle{}, wake, builder.WithPredicates(predicate.NewPredicateFuncs(ours))).
			Complete(&reconciler{client: env.Client, ca: string(ca)})
	}
}

func ours(object client.Object) bool {
	return object.(*certificatesv1.ClusterTrustBundle).Spec.SignerName == signer
}

type reconciler struct {
	client client.Client
	ca     string
}

// Reconcile writes the bundle, if it is missing or spoilt, and removes former ones.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	found := &certificatesv1.ClusterTrustBundleList{}
	if err := r.client.List(ctx, found); err != nil {
		return ctrl.Result{}, err
	}
	current := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(r.ca)},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: r.ca},
	}
	if err := r.write(ctx, current, found.Items); err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for i := range found.Items {
		if other := &found.Items[i]; ours(other) && other.Name != current.Name {
			errs = append(errs, owned.IgnoreStale(r.client.Delete(ctx, other)))
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

func (r *reconciler) write(ctx context.Context, want *certificatesv1.ClusterTrustBundle, found []certificatesv1.ClusterTrustBundle) error {
	for i := range found {
		if found[i].Name != want.Name {
			continue
		}
		if found[i].Spec.TrustBundle == want.Spec.TrustBundle {
			return nil
		}
		mended := found[i].DeepCopy()
		mended.Spec.TrustBundle = want.Spec.TrustBundle
		return owned.IgnoreStale(r.client.Update(ctx, mended))
	}
	if err := r.client.Create(ctx, want); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// nameOf begins with the signer's name, as names of its bundles must.
func nameOf(bundle string) string {
	digest := sha256.Sum256([]byte(bundle))
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), digest[:12])
}
