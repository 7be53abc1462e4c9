// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package capublisher

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

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// TrustBundleName is the identity of the controller that publishes the ClusterTrustBundle.
const TrustBundleName = "kube-apiserver-serving-clustertrustbundle-publisher"

const signer = "kubernetes.io/kube-apiserver-serving"

// AddTrustBundle returns the function that registers the controller which publishes the
// given PEM certificates in a ClusterTrustBundle of the signer
// kubernetes.io/kube-apiserver-serving, for pods that project it (KEP-3257). The bundle's
// name contains a digest of its content; the controller deletes the signer's bundles with
// other names, which are outdated. It runs once at the start, and watches all bundles of
// the signer.
func AddTrustBundle(ca []byte) func(control.Env) error {
	return func(env control.Env) error {
		once := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{})
			return nil
		})
		toAny := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
		return ctrl.NewControllerManagedBy(env.Manager).
			Named(TrustBundleName).
			WithOptions(env.Options(1)).
			WatchesRawSource(once).
			Watches(&certificatesv1.ClusterTrustBundle{}, toAny, builder.WithPredicates(predicate.NewPredicateFuncs(isOfSigner))).
			Complete(&trustBundleReconciler{client: env.Client, ca: string(ca)})
	}
}

func isOfSigner(object client.Object) bool {
	return object.(*certificatesv1.ClusterTrustBundle).Spec.SignerName == signer
}

type trustBundleReconciler struct {
	client client.Client
	ca     string
}

// Reconcile writes the bundle if it is missing or changed, and deletes outdated ones.
func (r *trustBundleReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	found := &certificatesv1.ClusterTrustBundleList{}
	if err := r.client.List(ctx, found); err != nil {
		return ctrl.Result{}, err
	}
	current := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: bundleName(r.ca)},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: r.ca},
	}
	if err := r.write(ctx, current, found.Items); err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for i := range found.Items {
		if other := &found.Items[i]; isOfSigner(other) && other.Name != current.Name {
			errs = append(errs, owned.IgnoreStale(r.client.Delete(ctx, other)))
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

func (r *trustBundleReconciler) write(ctx context.Context, want *certificatesv1.ClusterTrustBundle, found []certificatesv1.ClusterTrustBundle) error {
	for i := range found {
		if found[i].Name != want.Name {
			continue
		}
		if found[i].Spec.TrustBundle == want.Spec.TrustBundle {
			return nil
		}
		repaired := found[i].DeepCopy()
		repaired.Spec.TrustBundle = want.Spec.TrustBundle
		return owned.IgnoreStale(r.client.Update(ctx, repaired))
	}
	if err := r.client.Create(ctx, want); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// bundleName returns the name of the bundle with that content. It begins with the name of
// the signer, as the API requires.
func bundleName(bundle string) string {
	digest := sha256.Sum256([]byte(bundle))
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), digest[:12])
}
