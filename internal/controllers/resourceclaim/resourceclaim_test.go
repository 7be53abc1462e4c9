// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var ctx = context.Background()

func template() *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpus"},
		Spec: resourcev1.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
			Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r"}}}},
		},
	}
}

func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}, Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpus")}},
	}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func onNode(p *corev1.Pod) { p.Spec.NodeName = "n" }
func ended(p *corev1.Pod)  { p.Status.Phase = corev1.PodSucceeded }

// claim is an allocated claim that pods use.
func claim(edits ...func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Finalizers: []string{resourcev1.Finalizer}}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func usedBy(users ...*corev1.Pod) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		for _, user := range users {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: user.Name, UID: user.UID})
		}
	}
}

func claimsIn(w *controltest.World) []resourcev1.ResourceClaim {
	list := &resourcev1.ResourceClaimList{}
	w.Must(w.API.List(ctx, list))
	return list.Items
}

func generate(w *controltest.World, g *generator) error {
	_, err := g.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "pod"}})
	return err
}

func TestGenerate(t *testing.T) {
	w := controltest.New(t, pod(), template())
	g := newGenerator(w.Env(), true)
	w.Must(generate(w, g))
	got := claimsIn(w)
	if len(got) != 1 || !strings.HasPrefix(got[0].Name, "pod-gpu-") || got[0].Labels["a"] != "b" || got[0].Spec.Devices.Requests[0].Name != "r" {
		t.Fatalf("claims %+v", got)
	}
	if diff := cmp.Diff(map[string]string{"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}, got[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	p := &corev1.Pod{}
	w.Must(w.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "pod"}, p))
	if !metav1.IsControlledBy(&got[0], p) {
		t.Error("the claim is not the pod's")
	}
	if statuses := p.Status.ResourceClaimStatuses; len(statuses) != 1 || statuses[0].Name != "gpu" || *statuses[0].ResourceClaimName != got[0].Name {
		t.Errorf("statuses %+v", statuses)
	}
	// With the old cache, and then with the new one.
	for range 3 {
		w.Must(generate(w, g))
		w.Sync()
	}
	if n := len(claimsIn(w)); n != 1 {
		t.Errorf("%d claims", n)
	}
	if len(g.created) > 0 {
		t.Error("a created claim is not forgotten")
	}
	// A claim that was deleted is created again.
	w.Must(w.API.Delete(ctx, &got[0]))
	w.Sync()
	w.Must(generate(w, g))
	if again := claimsIn(w); len(again) != 1 || again[0].UID == got[0].UID {
		t.Errorf("claims %+v", again)
	}
}

// TestGenerateAfterCrash: a claim whose name was not recorded is found by its owner.
func TestGenerateAfterCrash(t *testing.T) {
	w := controltest.New(t, pod(), template())
	w.Refuse = func(verb string, _ client.Object) error {
		if verb == "patch status" {
			return errors.New("no")
		}
		return nil
	}
	if err := generate(w, newGenerator(w.Env(), true)); err == nil {
		t.Fatal("the refusal is not reported")
	}
	w.Refuse = nil
	w.Sync()
	w.Must(generate(w, newGenerator(w.Env(), true)))
	if n := len(claimsIn(w)); n != 1 {
		t.Errorf("%d claims", n)
	}
}

func TestTemplateMissing(t *testing.T) {
	w := controltest.New(t, pod())
	if err := generate(w, newGenerator(w.Env(), true)); err == nil {
		t.Error("no error")
	}
	events := w.Events()
	if len(events) != 1 || !strings.HasPrefix(events[0], `Warning FailedResourceClaimCreation PodResourceClaim gpu: resource claim template "gpus": `) {
		t.Errorf("events %q", events)
	}
}

// TestReserveForBoundPod: a pod that was created with a node uses its allocated claim.
func TestReserveForBoundPod(t *testing.T) {
	named := pod(onNode, func(p *corev1.Pod) {
		p.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("c")}
	})
	w := controltest.New(t, named, claim())
	w.Must(generate(w, newGenerator(w.Env(), true)))
	if users := claimsIn(w)[0].Status.ReservedFor; len(users) != 1 || users[0].UID != named.UID {
		t.Errorf("users %+v", users)
	}
}

func TestRelease(t *testing.T) {
	deleted := func(c *resourcev1.ResourceClaim) { c.DeletionTimestamp = new(metav1.NewTime(controltest.Start)) }
	foreign := func(c *resourcev1.ResourceClaim) {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{APIGroup: "x.io", Resource: "ys", Name: "y", UID: "y"})
	}
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		claim *resourcev1.ResourceClaim
		// generated is whether the claim was created for the pod; stale whether the cache lacks it.
		generated, stale bool
		want             string
	}{
		{"in use", pod(onNode), claim(), false, false, "1 users, allocated, protected"},
		{"in use, pod not in the cache", pod(onNode), claim(), false, true, "1 users, allocated, protected"},
		{"pod has ended", pod(onNode, ended), claim(), false, false, "0 users"},
		{"pod is gone", nil, claim(usedBy(pod())), false, false, "0 users"},
		{"pod was replaced", nil, claim(usedBy(pod(func(p *corev1.Pod) { p.UID = "before" }))), false, false, "0 users"},
		{"another kind of user", nil, claim(foreign), false, false, "1 users, allocated, protected"},
		{"never used", nil, claim(), false, false, "0 users, allocated, protected"},
		{"made for a pod that has ended", pod(onNode, ended), claim(), true, false, "gone"},
		{"made for a pod that runs", pod(onNode), claim(), true, false, "1 users, allocated, protected"},
		{"deleted, unused", nil, claim(deleted), false, false, "gone"},
		{"deleted, in use", pod(onNode), claim(deleted), false, false, "1 users, allocated, protected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := controltest.New(t)
			if tt.pod != nil {
				w.Must(w.API.Create(ctx, tt.pod))
				usedBy(tt.pod)(tt.claim)
				if tt.generated {
					tt.claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: tt.pod.UID, Controller: new(true)}}
				}
			}
			if !tt.stale {
				w.Sync()
			}
			beingDeleted := tt.claim.DeletionTimestamp != nil
			tt.claim.DeletionTimestamp = nil
			status := tt.claim.Status.DeepCopy()
			w.Must(w.API.Create(ctx, tt.claim))
			tt.claim.Status = *status
			w.Must(w.API.Status().Update(ctx, tt.claim))
			if beingDeleted {
				w.Must(w.API.Delete(ctx, tt.claim))
			}
			// Only the claim is in the cache of a stale case.
			env := w.Env()
			if tt.stale {
				env.Client = claimsOnly{env.Client, w.API}
			} else {
				w.Sync()
			}
			r := &releaser{client: env.Client, live: env.Live, gangs: true}
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tt.claim)})
			w.Must(err)
			now := &resourcev1.ResourceClaim{}
			if err := w.API.Get(ctx, client.ObjectKeyFromObject(tt.claim), now); !apierrors.IsNotFound(err) {
				w.Must(err)
			} else {
				now = nil
			}
			if got := describe(now); got != tt.want {
				t.Errorf("claim is %q, want %q", got, tt.want)
			}
		})
	}
}

// claimsOnly reads claims from the API, and everything else from an old cache.
type claimsOnly struct {
	client.Client
	api client.Client
}

func (c claimsOnly) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, isClaim := obj.(*resourcev1.ResourceClaim); isClaim {
		return c.api.Get(ctx, key, obj)
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

func describe(c *resourcev1.ResourceClaim) string {
	if c == nil {
		return "gone"
	}
	text := []string{[]string{"0 users", "1 users", "2 users"}[len(c.Status.ReservedFor)]}
	if c.Status.Allocation != nil {
		text = append(text, "allocated")
	}
	if slices.Contains(c.Finalizers, resourcev1.Finalizer) {
		text = append(text, "protected")
	}
	return strings.Join(text, ", ")
}

func TestBaseName(t *testing.T) {
	for _, tt := range []struct{ pod, claim, want string }{
		{"pod", "gpu", "pod-gpu-"},
		{strings.Repeat("p", 80), strings.Repeat("c", 20), strings.Repeat("p", 44) + "-" + strings.Repeat("c", 11)},
	} {
		if got := baseName(tt.pod, tt.claim); got != tt.want {
			t.Errorf("baseName(%q, %q) = %q, want %q", tt.pod, tt.claim, got, tt.want)
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("timed out waiting: " + what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestEvents: a running controller creates the claim when the template appears, and frees a claim when
// its pod ends.
func TestEvents(t *testing.T) {
	w := controltest.New(t, pod())
	w.Run(t, control.Controller{Name: Name, Source: Source, Add: Add(true)})
	w.Must(w.API.Create(ctx, template()))
	eventually(t, "the claim is created", func() bool { return len(claimsIn(w)) == 1 })
	p := &corev1.Pod{}
	w.Must(w.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "pod"}, p))
	failed := p.DeepCopy()
	failed.Status.Phase = corev1.PodFailed
	// The controller may be writing the name of the claim to the pod, so that an update could conflict.
	w.Must(w.API.Status().Patch(ctx, failed, client.MergeFrom(p)))
	eventually(t, "the claim is deleted", func() bool { return len(claimsIn(w)) == 0 })
}
