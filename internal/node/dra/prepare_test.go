// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

func check(t *testing.T, step string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s:\n got %q\nwant %q", step, got, want)
	}
}

func expect(t *testing.T, step string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", step, diff)
	}
}

// TestSharedClaim: a claim is prepared once for two pods, and unprepared after the last of them.
func TestSharedClaim(t *testing.T) {
	d, beta := newDriver(t, "d", withV1), newDriver(t, "beta", withV1beta1)
	w := newWorld(t, d)
	w.register(beta, drapbv1beta1.DRAPluginService)
	w.allocated("shared", []string{"d", "beta"}, "a", "b")
	w.allocated("own", []string{"d"}, "a")
	a, b := podWith("a", "shared", "own"), podWith("b", "shared")
	check(t, "first pod", w.Prepare(t.Context(), a), "")
	check(t, "again", w.Prepare(t.Context(), a), "")
	check(t, "second pod", w.Prepare(t.Context(), b), "")
	expect(t, "calls", d.took(), []string{"prepare shared", "prepare own"})
	expect(t, "calls with v1beta1", beta.took(), []string{"prepare shared"})
	expect(t, "records", w.records(), map[string][]types.UID{"shared": {"a", "b"}, "own": {"a"}})

	devices, err := w.Devices(a, &a.Spec.Containers[0])
	check(t, "devices", err, "")
	var names []string
	for _, device := range devices {
		names = append(names, device.Name)
	}
	expect(t, "devices", names, []string{"beta/gpu=shared", "d/gpu=shared", "d/gpu=own"})

	check(t, "first pod stops", w.Unprepare(t.Context(), "a"), "")
	expect(t, "calls", d.took(), []string{"unprepare own"})
	check(t, "second pod stops", w.Unprepare(t.Context(), "b"), "")
	check(t, "and again", w.Unprepare(t.Context(), "b"), "")
	expect(t, "calls", d.took(), []string{"unprepare shared"})
	expect(t, "calls with v1beta1", beta.took(), []string{"unprepare shared"})
	expect(t, "records", w.records(), map[string][]types.UID{})
}

// TestClaimOfAGroup: the pods of a PodGroup use the claim that is reserved for it.
func TestClaimOfAGroup(t *testing.T) {
	d := newDriver(t, "d", withV1)
	w := newWorld(t, d)
	update(w, w.allocated("c", []string{"d"}), func(c *resourcev1.ResourceClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup", Name: "g", UID: "g", Controller: new(true)}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g", UID: "g"}}
	})
	pod := func(name, group string) *v1.Pod {
		p := podOf("template", "c")
		p.Name, p.UID, p.Spec.SchedulingGroup = name, types.UID(name), &v1.PodSchedulingGroup{PodGroupName: &group}
		return p
	}
	check(t, "first pod", w.Prepare(t.Context(), pod("a", "g")), "")
	check(t, "second pod", w.Prepare(t.Context(), pod("b", "g")), "")
	expect(t, "calls", d.took(), []string{"prepare c"})
	check(t, "pod of another group", w.Prepare(t.Context(), pod("x", "h")),
		"prepare dynamic resources: ResourceClaim ns/c was not created for Pod ns/x (neither Pod nor PodGroup h is the owner)")
	check(t, "first pod stops", w.Unprepare(t.Context(), "a"), "")
	expect(t, "calls", d.took(), []string(nil))
	check(t, "second pod stops", w.Unprepare(t.Context(), "b"), "")
	expect(t, "calls", d.took(), []string{"unprepare c"})
}

// TestRefusals: a pod without a right to its claims, or without their drivers, leaves nothing to unprepare.
func TestRefusals(t *testing.T) {
	template := "template"
	for name, test := range map[string]struct {
		setup func(*world)
		pod   *v1.Pod
		want  string
	}{
		"not created": {pod: podOf(template, ""), want: `pod "ns/p": ResourceClaim not created yet`},
		"missing":     {pod: podWith("p", "c"), want: `fetch ResourceClaim c: resourceclaims.resource.k8s.io "c" not found`},
		"of another pod": {
			setup: func(w *world) { w.allocated("c", []string{"d"}, "p") },
			pod:   podOf(template, "c"), want: "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)",
		},
		"reserved for another pod": {
			setup: func(w *world) { w.allocated("c", []string{"d"}, "other") },
			pod:   podWith("p", "c"), want: "pod p (p) is not allowed to use ResourceClaim c (uid-c)",
		},
		"not allocated": {
			setup: func(w *world) {
				update(w, w.allocated("c", nil, "p"), func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil })
			},
			pod: podWith("p", "c"), want: "ResourceClaim c: not allocated",
		},
		"no driver": {
			setup: func(w *world) { w.allocated("c", []string{"other"}, "p") },
			pod:   podWith("p", "c"), want: "DRA driver other is not registered",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, "d", withV1)
			w := newWorld(t, d)
			if test.setup != nil {
				test.setup(w)
			}
			err := w.Prepare(t.Context(), test.pod)
			if got := strings.TrimPrefix(err.Error(), "prepare dynamic resources: "); got != test.want {
				t.Errorf("got %q", got)
			}
			expect(t, "calls", d.took(), []string(nil))
			expect(t, "records", w.records(), map[string][]types.UID{})
			check(t, "unprepare", w.Unprepare(t.Context(), test.pod.UID), "")
		})
	}
}

func podOf(template, claim string) *v1.Pod {
	p := podWith("p")
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &template}}
	if claim != "" {
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: &claim}}
	}
	return p
}

func update(w *world, c *resourcev1.ResourceClaim, change func(*resourcev1.ResourceClaim)) {
	w.t.Helper()
	change(c)
	if _, err := w.client.ResourceV1().ResourceClaims("ns").Update(w.t.Context(), c, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// TestFailures: failed calls are reported in upstream's words, and repeated; a claim that may be prepared is
// unprepared.
func TestFailures(t *testing.T) {
	d := newDriver(t, "d", withV1)
	w := newWorld(t, d)
	w.allocated("c", []string{"d"}, "p")
	p := podWith("p", "c")
	for _, test := range []struct {
		change func()
		want   string
	}{
		{func() { d.fail["prepare"] = status.Error(codes.Internal, "broken") }, "NodePrepareResources: rpc error: code = Internal desc = broken"},
		{func() { d.problem["c"] = "no power" }, "NodePrepareResources failed for ResourceClaim c: no power"},
		{func() { d.skip["c"] = true }, "NodePrepareResources skipped 1 ResourceClaims"},
		{func() { d.skip["unknown"] = true }, "NodePrepareResources returned result for unknown claim UID unknown"},
	} {
		d.set(test.change)
		check(t, "prepare", w.Prepare(t.Context(), p), "prepare dynamic resources: "+test.want)
		expect(t, "records", w.records(), map[string][]types.UID{"c": {"p"}})
		d.set(func() { clear(d.fail); clear(d.problem); clear(d.skip) })
	}
	d.took()
	d.set(func() { d.problem["c"] = "no power" })
	const failed = "NodeUnprepareResources failed for ResourceClaim c: no power"
	check(t, "unprepare", w.Unprepare(t.Context(), "p"), "unprepare dynamic resources: "+failed)
	w.allocatedFor(t, "c", "q")
	check(t, "another pod", w.Prepare(t.Context(), podWith("q", "c")), "prepare dynamic resources: ResourceClaim c is being unprepared")
	d.set(func() { clear(d.problem) })
	check(t, "unprepare again", w.Unprepare(t.Context(), "p"), "")
	expect(t, "calls", d.took(), []string{"unprepare c", "unprepare c"})
	check(t, "the other pod", w.Prepare(t.Context(), podWith("q", "c")), "")
}

// allocatedFor reserves a claim for one more pod.
func (w *world) allocatedFor(t *testing.T, claim, pod string) {
	t.Helper()
	c, err := w.client.ResourceV1().ResourceClaims("ns").Get(t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	update(w, c, func(c *resourcev1.ResourceClaim) {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID(pod)})
	})
}

// TestOneDriverFails: the claims of other drivers are unprepared.
func TestOneDriverFails(t *testing.T) {
	d, e := newDriver(t, "d", withV1), newDriver(t, "e", withV1)
	w := newWorld(t, d, e)
	w.allocated("mine", []string{"d"}, "p")
	w.allocated("yours", []string{"e"}, "p")
	check(t, "prepare", w.Prepare(t.Context(), podWith("p", "mine", "yours")), "")
	w.Deregister(t.Context(), "d", d.endpoint)
	check(t, "unprepare", w.Unprepare(t.Context(), "p"), "unprepare dynamic resources: DRA driver d is not registered")
	expect(t, "records", w.records(), map[string][]types.UID{"mine": {"p"}})
	w.register(d, drapb.DRAPluginService)
	check(t, "unprepare", w.Unprepare(t.Context(), "p"), "")
	expect(t, "calls", e.took(), []string{"prepare yours", "unprepare yours"})
	expect(t, "records", w.records(), map[string][]types.UID{})
}

// TestRestart: a new process knows the devices, has a claim prepared again only for another pod, and
// unprepares the claims of pods that are gone.
func TestRestart(t *testing.T) {
	d := newDriver(t, "d", withV1)
	w := newWorld(t, d)
	w.allocated("c", []string{"d"}, "p", "q")
	w.allocated("orphan", []string{"d"}, "gone")
	p := podWith("p", "c")
	check(t, "prepare", w.Prepare(t.Context(), p), "")
	check(t, "prepare", w.Prepare(t.Context(), podWith("gone", "orphan")), "")
	w.restart()
	if devices, err := w.Devices(p, &p.Spec.Containers[0]); err != nil || len(devices) != 1 {
		t.Errorf("devices %v, %v", devices, err)
	}
	keep := func(pod types.UID) bool { return pod != "gone" }
	check(t, "orphans", w.RemoveOrphans(t.Context(), keep), "unprepare dynamic resources: DRA driver d is not registered")
	w.register(d, drapb.DRAPluginService)
	d.took()
	check(t, "orphans", w.RemoveOrphans(t.Context(), keep), "")
	check(t, "second pod", w.Prepare(t.Context(), podWith("q", "c")), "")
	expect(t, "calls", d.took(), []string{"unprepare orphan", "prepare c"})

	// A claim that was created again under the same name is another one.
	if err := w.client.ResourceV1().ResourceClaims("ns").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	update := w.allocated("c", []string{"d"}, "r")
	update.UID = "other"
	if _, err := w.client.ResourceV1().ResourceClaims("ns").Update(t.Context(), update, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check(t, "another claim", w.Prepare(t.Context(), podWith("r", "c")),
		"prepare dynamic resources: old ResourceClaim with same name c and different UID uid-c still exists (previous pod force-deleted?!)")
}

func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "u.json")
	for file, text := range map[string]string{path: "{", path + ".new": "x"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(dir)
	check(t, "open", err, "the record of a ResourceClaim at "+path+" is damaged: drain the node and remove it: unexpected end of JSON input")
}

// TestConcurrentPods: two pods that start at once have their claim prepared once, and a pod that is to stop
// does not wait for the other's driver.
func TestConcurrentPods(t *testing.T) {
	d := newDriver(t, "d", withV1)
	d.hold = make(chan struct{})
	w := newWorld(t, d)
	w.allocated("c", []string{"d"}, "a", "b")
	first, second := make(chan error), make(chan error)
	go func() { first <- w.Prepare(t.Context(), podWith("a", "c")) }()
	waitUntil(t, "the claim is not recorded", func() bool { return len(w.records()) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { second <- w.Prepare(ctx, podWith("b", "c")) }()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { second <- w.Prepare(t.Context(), podWith("b", "c")) }()
	close(d.hold)
	check(t, "first", <-first, "")
	check(t, "second", <-second, "")
	expect(t, "calls", d.took(), []string{"prepare c"})
}
