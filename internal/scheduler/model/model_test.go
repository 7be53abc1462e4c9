// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func somePod(random *rand.Rand, name string) *Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU:                     *resource.NewMilliQuantity(random.Int64N(500), resource.DecimalSI),
				"example.com/a":                    *resource.NewQuantity(random.Int64N(3), resource.DecimalSI),
				"not-a-known-thing":                resource.MustParse("1"),
				v1.ResourceHugePagesPrefix + "2Mi": resource.MustParse("2Mi"),
			}},
			Ports: []v1.ContainerPort{{HostPort: 1 + random.Int32N(3)}},
		}}},
	}
	if random.IntN(2) == 0 {
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(fmt.Sprint("rs", random.IntN(2))), Controller: ptr.To(true)}}
	}
	if random.IntN(4) == 0 {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	if random.IntN(3) == 0 {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: "zone"}},
		}}
	}
	return NewPod(pod)
}

// TestNodeSums adds, changes, moves and removes pods at random. The sums of a node must always equal
// the sums over its pods.
func TestNodeSums(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := NewCluster()
	pods := map[string]*Pod{}
	where := map[string]string{}
	for range 5000 {
		name, node := fmt.Sprint("p", random.IntN(40)), fmt.Sprint("n", random.IntN(4))
		switch random.IntN(5) {
		case 0:
			delete(pods, name)
			delete(where, name)
			c.Remove(types.UID(name))
		case 1:
			c.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		case 2:
			c.RemoveNode(node)
		default:
			pods[name], where[name] = somePod(random, name), node
			c.Place(pods[name], node)
		}
	}
	anyAffinity := false
	for i := range 4 {
		name := fmt.Sprint("n", i)
		want := newNode()
		for p, node := range where {
			if node == name {
				want.Add(pods[p])
				anyAffinity = anyAffinity || pods[p].HasAffinity()
			}
		}
		got := c.node(name)
		byName := cmpopts.SortSlices(func(a, b *Pod) bool { return a.Name < b.Name })
		samePod := cmp.Comparer(func(a, b *Pod) bool { return a == b })
		nonZero := cmpopts.IgnoreMapEntries(func(_ v1.ResourceName, n int64) bool { return n == 0 })
		opts := cmp.Options{byName, samePod, nonZero, cmpopts.EquateEmpty(), cmp.AllowUnexported(Node{}), cmpopts.IgnoreFields(Node{}, "Node", "Images")}
		if diff := cmp.Diff(want, got, opts); diff != "" {
			t.Errorf("%s (-sum of pods +node):\n%s", name, diff)
		}
	}
	if c.HasAffinity() != anyAffinity {
		t.Errorf("HasAffinity() = %v", c.HasAffinity())
	}
	for name := range where {
		c.Remove(types.UID(name))
	}
	if c.HasAffinity() || len(c.pods) != 0 {
		t.Error("removed pods are not forgotten")
	}
}

func TestClone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	original := newNode()
	for i := range 10 {
		original.Add(somePod(random, fmt.Sprint("p", i)))
	}
	reference := original.Clone()
	trial := original.Clone()
	trial.Remove(original.Pods[0])
	trial.Remove(original.Pods[3])
	trial.Add(somePod(random, "new"))
	opts := cmp.Options{cmp.Comparer(func(a, b *Pod) bool { return a == b }), cmp.AllowUnexported(Node{})}
	if diff := cmp.Diff(reference, original, opts); diff != "" {
		t.Errorf("a change of a copy changed the original:\n%s", diff)
	}
}

func TestNormalImage(t *testing.T) {
	for name, want := range map[string]string{
		"nginx":                    "nginx:latest",
		"nginx:1":                  "nginx:1",
		"host:5000/nginx":          "host:5000/nginx:latest",
		"host:5000/nginx:1":        "host:5000/nginx:1",
		"host/nginx@sha256:abcdef": "host/nginx@sha256:abcdef",
	} {
		if got := NormalImage(name); got != want {
			t.Errorf("NormalImage(%q) = %q, want %q", name, got, want)
		}
	}
}
