// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package capublisher

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func bundle(name, signer, content string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: content},
	}
}

func TestOneTrustBundleIsKept(t *testing.T) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	// sha256("PEM")[:12]
	const bundleOfPEM = "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9"
	for name, existing := range map[string][]client.Object{
		"no bundle":       nil,
		"changed content": {bundle(bundleName("PEM"), signer, "other")},
		"up to date":      {bundle(bundleName("PEM"), signer, "PEM")},
		"outdated":        {bundle(bundleName("OLD"), signer, "OLD"), bundle("by-hand", signer, "X")},
		"another signer":  {bundle("example.com:s:a", "example.com/s", "X")},
		"no signer":       {bundle("free", "", "X")},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(existing...).Build()
			r := &trustBundleReconciler{client: api, ca: "PEM"}
			for range 2 {
				if _, err := r.Reconcile(ctx, ctrl.Request{}); err != nil {
					t.Fatal(err)
				}
			}
			found := &certificatesv1.ClusterTrustBundleList{}
			if err := api.List(ctx, found); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, b := range found.Items {
				got[b.Name] = b.Spec.TrustBundle
			}
			want := map[string]string{bundleName("PEM"): "PEM"}
			for _, other := range existing {
				if !isOfSigner(other) {
					want[other.GetName()] = "X"
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("bundles (-want +got):\n%s", diff)
			}
		})
	}
	if got := bundleName("PEM"); got != bundleOfPEM {
		t.Errorf("named %s", got)
	}
}
