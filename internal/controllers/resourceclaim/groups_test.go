// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

// podGroup is a PodGroup with one claim from the template.
func podGroup(edits ...func(*schedulingv1beta1.PodGroup)) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "group"}, Spec: schedulingv1beta1.PodGroupSpec{
		ResourceClaims: []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpus")}},
	}}
	for _, edit := range edits {
		edit(g)
	}
	return g
}

func inGroup(p *corev1.Pod) {
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("group")}
}

func otherClaimName(p *corev1.Pod) { p.Spec.ResourceClaims[0].Name = "other" }

func generateForGroup(w *controltest.World) error {
	_, err := newGroupGenerator(w.Env()).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "group"}})
	return err
}

// claimOf returns the recorded name of a claim.
func claimOf(w *controltest.World, obj client.Object, name string) string {
	w.Must(w.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, obj))
	switch obj := obj.(type) {
	case *corev1.Pod:
		if statuses := obj.Status.ResourceClaimStatuses; len(statuses) == 1 {
			return *statuses[0].ResourceClaimName
		}
	case *schedulingv1beta1.PodGroup:
		return recordedClaim(obj, "gpu")
	}
	return ""
}

// TestGenerateForGroup: the claim is created once for the group, and recorded for its pods.
func TestGenerateForGroup(t *testing.T) {
	w := controltest.New(t, podGroup(), pod(inGroup), template())
	g := newGenerator(w.Env(), true)
	w.Must(generate(w, g))
	if n := len(claimsIn(w)); n != 0 {
		t.Fatalf("%d claims were created for a pod", n)
	}
	for range 3 {
		w.Must(generateForGroup(w))
		w.Sync()
		w.Must(generate(w, g))
		w.Sync()
	}
	got := claimsIn(w)
	if len(got) != 1 || !strings.HasPrefix(got[0].Name, "group-gpu-") || got[0].Annotations[resourcev1.PodResourceClaimAnnotation] != "gpu" {
		t.Fatalf("claims %+v", got)
	}
	group := &schedulingv1beta1.PodGroup{}
	if name := claimOf(w, group, "group"); name != got[0].Name || !metav1.IsControlledBy(&got[0], group) {
		t.Errorf("the group has %q", name)
	}
	if name := claimOf(w, &corev1.Pod{}, "pod"); name != got[0].Name {
		t.Errorf("the pod has %q", name)
	}
	// A claim that was deleted is created again, for both.
	w.Must(w.API.Delete(ctx, &got[0]))
	w.Sync()
	w.Must(generate(w, g))
	w.Must(generateForGroup(w))
	w.Sync()
	w.Must(generate(w, g))
	again := claimsIn(w)
	if len(again) != 1 || claimOf(w, group, "group") != again[0].Name || claimOf(w, &corev1.Pod{}, "pod") != again[0].Name {
		t.Errorf("claims %+v", again)
	}
}

// TestWhoseClaim: a pod shares a claim of its group only if name and source are the same.
func TestWhoseClaim(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		group *schedulingv1beta1.PodGroup
		gangs bool
		want  string
	}{
		{"the group's", pod(inGroup), podGroup(), true, "group"},
		{"another name", pod(inGroup, otherClaimName), podGroup(), true, "pod"},
		{"another template", pod(inGroup), podGroup(func(g *schedulingv1beta1.PodGroup) {
			g.Spec.ResourceClaims[0].ResourceClaimTemplateName = new("others")
			g.Status.ResourceClaimStatuses = []schedulingv1beta1.PodGroupResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("c")}}
		}), true, "pod"},
		{"in no group", pod(), podGroup(), true, "pod"},
		{"no group yet", pod(inGroup), nil, true, ""},
		{"gangs are not served", pod(inGroup), podGroup(), false, "pod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := controltest.New(t, tt.pod, template())
			if tt.group != nil {
				w.Must(w.API.Create(ctx, tt.group))
				w.Must(w.API.Status().Update(ctx, tt.group))
				if len(tt.group.Status.ResourceClaimStatuses) == 0 {
					w.Sync()
					w.Must(generateForGroup(w))
				}
				w.Sync()
			}
			w.Must(generate(w, newGenerator(w.Env(), tt.gangs)))
			recorded, owner := claimOf(w, &corev1.Pod{}, "pod"), ""
			for _, claim := range claimsIn(w) {
				if claim.Name == recorded {
					owner = metav1.GetControllerOf(&claim).Name
				}
			}
			if owner != tt.want {
				t.Errorf("the pod has a claim of %q, want %q", owner, tt.want)
			}
		})
	}
}

func TestGroupIsNotReady(t *testing.T) {
	w := controltest.New(t, podGroup(func(g *schedulingv1beta1.PodGroup) { g.Annotations = map[string]string{ownership.HoldAnnotation: "x"} }))
	if err := generateForGroup(w); err != nil {
		t.Errorf("a group on hold: %v", err)
	}
	w = controltest.New(t, podGroup())
	if err := generateForGroup(w); err == nil {
		t.Error("a missing template is no error")
	}
	events := w.Events()
	if len(events) != 1 || !strings.HasPrefix(events[0], `Warning FailedResourceClaimCreation PodGroupResourceClaim gpu: resource claim template "gpus": `) {
		t.Errorf("events %q", events)
	}
}

// TestGenerateForGroupAfterCrash: a claim whose name was not recorded is found by its owner.
func TestGenerateForGroupAfterCrash(t *testing.T) {
	w := controltest.New(t, podGroup(), template())
	w.Refuse = func(verb string, _ client.Object) error {
		if verb == "patch status" {
			return errors.New("no")
		}
		return nil
	}
	if err := generateForGroup(w); err == nil {
		t.Fatal("the refusal is not reported")
	}
	w.Refuse = nil
	w.Sync()
	w.Must(generateForGroup(w))
	if got := claimsIn(w); len(got) != 1 || claimOf(w, &schedulingv1beta1.PodGroup{}, "group") != got[0].Name {
		t.Errorf("claims %+v", got)
	}
}

// TestReserveForGroup: a pod that was created with a node has the claim of its group reserved for the
// group, once.
func TestReserveForGroup(t *testing.T) {
	named := func(p *corev1.Pod) {
		p.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("c")}
	}
	group := podGroup(func(g *schedulingv1beta1.PodGroup) {
		g.Spec.ResourceClaims[0] = schedulingv1beta1.PodGroupResourceClaim{Name: "gpu", ResourceClaimName: new("c")}
	})
	w := controltest.New(t, pod(onNode, inGroup, named), group, claim())
	for range 2 {
		w.Must(generate(w, newGenerator(w.Env(), true)))
		w.Sync()
	}
	want := resourcev1.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "group", UID: group.UID}
	if users := claimsIn(w)[0].Status.ReservedFor; len(users) != 1 || users[0] != want {
		t.Errorf("users %+v", users)
	}
}

// TestReleaseByGroup: a claim is freed when its PodGroup is gone, not when the pods of the group have
// ended.
func TestReleaseByGroup(t *testing.T) {
	for _, tt := range []struct {
		name         string
		group, stale bool
		uid          string
		gangs        bool
		want         string
	}{
		{"in use", true, false, "", true, "1 users, allocated, protected"},
		{"group not in the cache", true, true, "", true, "1 users, allocated, protected"},
		{"group was replaced", true, false, "before", true, "0 users"},
		{"group is gone", false, false, "before", true, "0 users"},
		{"gangs are not served", false, false, "before", false, "1 users, allocated, protected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, group, c := controltest.New(t, pod(onNode, inGroup, ended)), podGroup(), claim()
			if tt.group {
				w.Must(w.API.Create(ctx, group))
			}
			if tt.uid != "" {
				group.UID = types.UID(tt.uid)
			}
			c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "group", UID: group.UID}}
			status := c.Status.DeepCopy()
			w.Must(w.API.Create(ctx, c))
			c.Status = *status
			w.Must(w.API.Status().Update(ctx, c))
			env := w.Env()
			if tt.stale {
				env.Client = claimsOnly{env.Client, w.API}
			} else {
				w.Sync()
			}
			r := &releaser{client: env.Client, live: env.Live, gangs: tt.gangs}
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
			w.Must(err)
			w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(c), c))
			if got := describe(c); got != tt.want {
				t.Errorf("claim is %q, want %q", got, tt.want)
			}
		})
	}
}

// TestGroupEvents: running controllers create the group's claim when the template appears, and record it
// for the pods; they free the claim when the group is gone.
func TestGroupEvents(t *testing.T) {
	w := controltest.New(t, podGroup(), pod(inGroup))
	w.Run(t, control.Controller{Name: Name, Source: Source, Add: Add(true)})
	w.Must(w.API.Create(ctx, template()))
	p := &corev1.Pod{}
	eventually(t, "the claim is recorded", func() bool { return claimOf(w, p, "pod") != "" })
	c := &claimsIn(w)[0]
	group := &schedulingv1beta1.PodGroup{}
	w.Must(w.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "group"}, group))
	c.Status.Allocation = &resourcev1.AllocationResult{}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "group", UID: group.UID}}
	w.Must(w.API.Status().Update(ctx, c))
	w.Must(w.API.Delete(ctx, group))
	eventually(t, "the claim is free", func() bool {
		w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(c), c))
		return len(c.Status.ReservedFor) == 0
	})
}
