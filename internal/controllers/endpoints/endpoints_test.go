// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but still served to clients that read them.

package endpoints

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

func newService(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func newPod(name, ip string, ready bool, change ...func(*corev1.Pod)) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}, {IP: "fd00::" + ip[len(ip)-1:]}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// text writes subsets as "8080/http 10.1.0.1 !10.1.0.2", where ! is not ready.
func text(subsets []corev1.EndpointSubset) (out []string) {
	for _, s := range subsets {
		line := ""
		for _, p := range s.Ports {
			line += fmt.Sprintf("%d/%s ", p.Port, p.Name)
		}
		for _, a := range s.Addresses {
			line += a.IP + " "
		}
		for _, a := range s.NotReadyAddresses {
			line += "!" + a.IP + " "
		}
		out = append(out, line[:len(line)-1])
	}
	return out
}

func TestSubsets(t *testing.T) {
	named := func(number int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: number, Protocol: corev1.ProtocolTCP}}}}
		}
	}
	terminating := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: controltest.Start} }
	admin := func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 81, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("admin")})
	}
	for _, tc := range []struct {
		name    string
		service *corev1.Service
		pods    []*corev1.Pod
		want    []string
	}{
		{"none", newService(), nil, nil},
		{"ready and not ready pods", newService(), []*corev1.Pod{newPod("b", "10.1.0.2", false), newPod("a", "10.1.0.1", true)}, []string{"8080/http 10.1.0.1 !10.1.0.2"}},
		{"pods without an address, ended and terminating are left out", newService(), []*corev1.Pod{
			newPod("a", "10.1.0.1", true, func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }),
			newPod("b", "10.1.0.2", true, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			newPod("c", "10.1.0.3", true, terminating)}, nil},
		{"publishNotReadyAddresses", newService(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			[]*corev1.Pod{newPod("a", "10.1.0.1", false), newPod("b", "10.1.0.2", true, terminating)}, []string{"8080/http 10.1.0.1 10.1.0.2"}},
		{"ports of the same pods are in one subset", newService(admin), []*corev1.Pod{newPod("a", "10.1.0.1", true, named(9000)), newPod("b", "10.1.0.2", true, named(9000))},
			[]string{"8080/http 9000/admin 10.1.0.1 10.1.0.2"}},
		{"a named port with different numbers", newService(admin), []*corev1.Pod{newPod("a", "10.1.0.1", true, named(9000)), newPod("b", "10.1.0.2", true, named(9001)), newPod("c", "10.1.0.3", true)},
			[]string{"8080/http 10.1.0.1 10.1.0.2 10.1.0.3", "9000/admin 10.1.0.1", "9001/admin 10.1.0.2"}},
		{"IPv6", newService(func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }), []*corev1.Pod{newPod("a", "10.1.0.1", true)}, []string{"8080/http fd00::1"}},
		{"headless without ports", newService(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, nil }), []*corev1.Pod{newPod("a", "10.1.0.1", true)}, []string{"10.1.0.1"}},
	} {
		for range 2 { // in any order of the pods
			slices.Reverse(tc.pods)
			got, truncated := subsetsOf(tc.service, tc.pods)
			if diff := cmp.Diff(tc.want, text(got)); diff != "" || truncated {
				t.Errorf("%s: truncated %v, subsets (-want +got):\n%s", tc.name, truncated, diff)
			}
		}
	}
}

func TestTooManyAddresses(t *testing.T) {
	var all []*corev1.Pod
	for i := range 1500 {
		all = append(all, newPod(fmt.Sprint(i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), i%2 == 0))
	}
	got, truncated := subsetsOf(newService(), all)
	if len(got) != 1 || !truncated || len(got[0].Addresses) != 750 || len(got[0].NotReadyAddresses) != 250 {
		t.Errorf("truncated %v, %d subsets, %d ready", truncated, len(got), len(got[0].Addresses))
	}
}

func TestEndpointsLifecycle(t *testing.T) {
	w := controltest.New(t, newService(), newPod("a", "10.1.0.1", true))
	r := newReconciler(w.Env())
	sync := func() {
		t.Helper()
		w.Sync()
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		w.Must(err)
	}
	get := func() *corev1.Endpoints {
		got := &corev1.Endpoints{}
		if w.API.Get(ctx, key, got) != nil {
			return nil
		}
		return got
	}
	sync()
	got := get()
	want := map[string]string{"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Error(diff)
	}
	address := got.Subsets[0].Addresses[0]
	if *address.NodeName != "node" || address.TargetRef.Name != "a" || address.TargetRef.Kind != "Pod" {
		t.Errorf("address %+v", address)
	}
	// Without a change, nothing is written.
	version := got.ResourceVersion
	if sync(); get().ResourceVersion != version {
		t.Error("unchanged Endpoints were written")
	}
	w.Must(w.API.Create(ctx, newPod("b", "10.1.0.2", false)))
	sync()
	if diff := cmp.Diff([]string{"8080/http 10.1.0.1 !10.1.0.2"}, text(get().Subsets)); diff != "" {
		t.Error(diff)
	}
	service := &corev1.Service{}
	w.Must(w.API.Get(ctx, key, service))
	w.Must(w.API.Delete(ctx, service))
	if sync(); get() != nil {
		t.Error("the Endpoints were not deleted with their Service")
	}
	if len(w.Events()) != 0 {
		t.Error("there were events")
	}
}

func TestServicesWithoutSelectorAreLeftAlone(t *testing.T) {
	w := controltest.New(t, newService(func(s *corev1.Service) { s.Spec.Selector = nil }),
		&corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "1.2.3.4"}}}}})
	w.Refuse = func(verb string, obj client.Object) error {
		t.Errorf("%s %s", verb, obj.GetName())
		return nil
	}
	_, err := newReconciler(w.Env()).Reconcile(ctx, ctrl.Request{NamespacedName: key})
	w.Must(err)
}

// TestStaleCache lets the cache lag behind the controller's own create and update, which is no error.
func TestStaleCache(t *testing.T) {
	w := controltest.New(t, newService())
	r := newReconciler(w.Env())
	again := func() bool {
		t.Helper()
		result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		w.Must(err)
		return result.RequeueAfter != 0
	}
	w.Sync()
	if again() {
		t.Error("requeued after a create")
	}
	if !again() {
		t.Error("not requeued though the cache lacks the Endpoints that exist")
	}
	w.Sync()
	for i, want := range []bool{false, true} {
		w.Must(w.API.Create(ctx, newPod(fmt.Sprint("p", i), fmt.Sprintf("10.1.0.%d", i), true)))
		w.Sync(&corev1.PodList{})
		if got := again(); got != want {
			t.Errorf("requeued after update %d: %v, want %v", i, got, want)
		}
	}
	w.Sync()
	if again() || len(w.Events()) != 0 {
		t.Errorf("events %v, or another requeue", w.Events())
	}
}
