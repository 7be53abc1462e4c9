// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package trustbundle

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

func TestOneBundleIsPublished(t *testing.T) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	// The digest is of the content: sha256("PEM")[:12].
	const name = "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9"
	for what, there := range map[string][]client.Object{
		"none":         nil,
		"spoilt":       {bundle(nameOf("PEM"), signer, "other")},
		"up to date":   {bundle(nameOf("PEM"), signer, "PEM")},
		"former":       {bundle(nameOf("OLD"), signer, "OLD"), bundle("by-hand", signer, "X")},
		"not its own":  {bundle("example.com:s:a", "example.com/s", "X")},
		"of no signer": {bundle("free", "", "X")},
	} {
		t.Run(what, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).Build()
			r := &reconciler{client: api, ca: "PEM"}
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
			want := map[string]string{nameOf("PEM"): "PEM"}
			for _, other := range there {
				if !ours(other) {
					want[other.GetName()] = "X"
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("bundles (-want +got):\n%s", diff)
			}
		})
	}
	if got := nameOf("PEM"); got != name {
		t.Errorf("named %s", got)
	}
}
