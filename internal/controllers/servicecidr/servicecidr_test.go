// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servicecidr

import (
	"context"
	"errors"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func rangeOf(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

func address(name string) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{networkingv1.LabelManagedBy: managedBy}}}
}

type bench struct {
	*testing.T
	client.Client
	clock *testingclock.FakeClock
	r     *reconciler
}

func newBench(t *testing.T, objects ...client.Object) bench {
	c := newAPI(t).WithObjects(objects...).Build()
	clock := testingclock.NewFakeClock(time.Now()) // the fake API stamps deletions with the real time
	return bench{t, c, clock, &reconciler{client: c, clock: clock, events: record.NewFakeRecorder(10)}}
}

func newAPI(t *testing.T) *fake.ClientBuilder {
	scheme := runtime.NewScheme()
	if err := networkingv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&networkingv1.ServiceCIDR{})
}
func (b bench) reconcile(name string) ctrl.Result {
	b.Helper()
	result, err := b.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
	if err != nil {
		b.Fatal(err)
	}
	return result
}

func (b bench) ready(name string) metav1.ConditionStatus {
	b.Helper()
	found := &networkingv1.ServiceCIDR{}
	if err := b.Get(context.Background(), client.ObjectKey{Name: name}, found); err != nil {
		b.Fatal(err)
	}
	if len(found.Finalizers) != 1 || found.Finalizers[0] != finalizer {
		b.Errorf("finalizers %v", found.Finalizers)
	}
	if c := meta.FindStatusCondition(found.Status.Conditions, networkingv1.ServiceCIDRConditionReady); c != nil {
		return c.Status
	}
	return ""
}

func (b bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func TestRangeWaitsForItsAddresses(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, rangeOf("extra", "10.1.0.0/24"), rangeOf("other", "10.2.0.0/24"), address("10.1.0.7"), address("10.2.0.7"))
	b.reconcile("extra")
	if got := b.ready("extra"); got != metav1.ConditionTrue {
		t.Fatalf("Ready is %q", got)
	}

	b.must(b.Delete(ctx, rangeOf("extra")))
	b.reconcile("extra")
	if got := b.ready("extra"); got != metav1.ConditionFalse {
		t.Errorf("Ready is %q while an address is in use", got)
	}
	if got := b.r.terminating(ctx, nil); len(got) != 1 || got[0].Name != "extra" {
		t.Errorf("a deleted address wakes %v", got)
	}

	b.must(b.Delete(ctx, address("10.1.0.7")))
	if wait := b.reconcile("extra").RequeueAfter; wait <= 0 || wait > gracePeriod+time.Second {
		t.Errorf("requeued after %v", wait)
	}
	b.clock.Step(gracePeriod + 2*time.Second)
	b.reconcile("extra")
	if err := b.Get(ctx, client.ObjectKey{Name: "extra"}, &networkingv1.ServiceCIDR{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ServiceCIDR was not removed: %v", err)
	}
}

func TestCoveredRangeIsDeleted(t *testing.T) {
	b := newBench(t, rangeOf("small", "10.1.0.0/24"), rangeOf("large", "10.1.0.0/16"), address("10.1.0.7"))
	b.reconcile("small")
	b.must(b.Delete(context.Background(), rangeOf("small")))
	b.clock.Step(gracePeriod + 2*time.Second)
	b.reconcile("small")
	if err := b.Get(context.Background(), client.ObjectKey{Name: "small"}, &networkingv1.ServiceCIDR{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ServiceCIDR was not removed: %v", err)
	}
}

func TestFailedStatusUpdateIsReported(t *testing.T) {
	refused := errors.New("no")
	c := newAPI(t).WithObjects(rangeOf("extra", "10.1.0.0/24")).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return refused
		},
	}).Build()
	events := record.NewFakeRecorder(1)
	r := &reconciler{client: c, clock: testingclock.NewFakeClock(time.Now()), events: events}
	if _, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "extra"}}); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if got, want := <-events.Events, "Warning KubernetesServiceCIDRError The ServiceCIDR Status can not be set to Ready=True"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
}
