// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestOldPodCertificateRequestsAreDeleted(t *testing.T) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	request := func(name string, age time.Duration) client.Object {
		return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(start.Add(-age))}}
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request("new", podRequestTTL-time.Second), request("old", podRequestTTL), request("older", time.Hour)).Build()
	c := &podRequestCleaner{client: api, live: api, clock: testingclock.NewFakePassiveClock(start)}
	if err := c.clean(ctx); err != nil {
		t.Fatal(err)
	}
	left := &certificatesv1.PodCertificateRequestList{}
	if err := api.List(ctx, left); err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 1 || left.Items[0].Name != "new" {
		t.Errorf("left %v", left.Items)
	}
}
