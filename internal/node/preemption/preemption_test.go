// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package preemption

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/admission"
)

// of returns a pod that requests memory, in MiB, and CPU, in millicores. It is guaranteed if its limits are the same.
func of(name string, mebibytes, millis int64, guaranteed bool) *v1.Pod {
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
	if mebibytes > 0 {
		c.Resources.Requests[v1.ResourceMemory] = *resource.NewQuantity(mebibytes<<20, resource.BinarySI)
	}
	if millis > 0 {
		c.Resources.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(millis, resource.DecimalSI)
	}
	if guaranteed {
		c.Resources.Limits = c.Resources.Requests
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: new(int32(0)), Containers: []v1.Container{c}}}
}

func critical(p *v1.Pod) *v1.Pod {
	p.Spec.Priority = new(int32(2_000_000_000))
	return p
}

func memory(mebibytes int64) admission.Shortfall {
	return admission.Shortfall{Name: v1.ResourceMemory, Amount: mebibytes << 20}
}

func names(pods []*v1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func TestVictims(t *testing.T) {
	cpu := admission.Shortfall{Name: v1.ResourceCPU, Amount: 500}
	slot := admission.Shortfall{Name: v1.ResourcePods, Amount: 1}
	best, small, big := of("best", 0, 0, false), of("small", 100, 100, false), of("big", 300, 100, false)
	fixed := of("fixed", 200, 500, true)
	for name, test := range map[string]struct {
		preemptor *v1.Pod
		pods      []*v1.Pod
		short     []admission.Shortfall
		want      string
		refused   string
	}{
		"best effort holds no memory": {of("", 0, 0, false), []*v1.Pod{best, small}, []admission.Shortfall{memory(50)}, "small", ""},
		"one pod too many":            {of("", 0, 0, false), []*v1.Pod{small, best, fixed}, []admission.Shortfall{slot}, "best", ""},
		"the smallest that is enough": {of("", 0, 0, false), []*v1.Pod{big, small}, []admission.Shortfall{memory(100)}, "small", ""},
		"fewer before smaller":        {of("", 0, 0, false), []*v1.Pod{small, of("other", 100, 0, false), big}, []admission.Shortfall{memory(200)}, "big", ""},
		"burstable before guaranteed": {of("", 0, 0, false), []*v1.Pod{fixed, big, small}, []admission.Shortfall{memory(200)}, "big", ""},
		"guaranteed if it must be":    {of("", 0, 0, false), []*v1.Pod{fixed, big, small}, []admission.Shortfall{cpu}, "fixed", ""},
		"both resources":              {of("", 0, 0, false), []*v1.Pod{fixed, big, small}, []admission.Shortfall{memory(300), cpu}, "small fixed", ""},
		"critical pods stay":          {of("", 0, 0, false), []*v1.Pod{critical(of("c", 500, 0, false))}, []admission.Shortfall{memory(1)}, "", "(res: memory, q: 1048576), "},
		"too little":                  {of("", 0, 0, false), []*v1.Pod{small, fixed}, []admission.Shortfall{memory(301)}, "", "(res: memory, q: 1048576), "},
		"nothing is short":            {of("", 0, 0, false), []*v1.Pod{small}, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			victims, refused := Victims(critical(test.preemptor), test.pods, test.short)
			if got := names(victims); got != test.want {
				t.Errorf("victims %q, want %q", got, test.want)
			}
			if (refused != nil) != (test.refused != "") || refused != nil && !strings.HasSuffix(refused.Message, "["+test.refused+"]") {
				t.Errorf("refused %v, want %q", refused, test.refused)
			}
		})
	}
}

// For memory alone, no set of pods that is enough has fewer guaranteed pods than the victims, and none with the same guaranteed
// pods has fewer burstable ones.
func TestVictimsAreFewest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var pods []*v1.Pod
		for i := range random.IntN(8) {
			pods = append(pods, of(fmt.Sprint(i), random.Int64N(6), 1, random.IntN(2) == 0))
		}
		need := 1 + random.Int64N(15)
		before := slices.Clone(pods)
		victims, refused := Victims(critical(of("", 0, 0, false)), pods, []admission.Shortfall{memory(need)})
		if !slices.Equal(before, pods) {
			t.Fatal("the pods were reordered")
		}
		sum, guaranteed, burstable := count(victims)
		enough := false
		for set := range subsets(pods) {
			size, g, b := count(set)
			if size < need {
				continue
			}
			enough = true
			if refused != nil || len(g) < len(guaranteed) || slices.Equal(g, guaranteed) && b < burstable {
				t.Fatalf("victims %s (%v) for %d MiB, although these are enough: %s", names(victims), refused, need, names(set))
			}
		}
		if refused == nil && (!enough || sum < need) {
			t.Fatalf("victims %s free %d of %d MiB", names(victims), sum, need)
		}
	}
}

// count returns the MiB that pods request, the names of those that are guaranteed, in order, and the number of the others.
func count(pods []*v1.Pod) (sum int64, guaranteed []string, burstable int) {
	for _, p := range pods {
		sum += p.Spec.Containers[0].Resources.Requests.Memory().Value() >> 20
		if qos.GetPodQOS(p) == v1.PodQOSGuaranteed {
			guaranteed = append(guaranteed, p.Name)
		} else {
			burstable++
		}
	}
	slices.Sort(guaranteed)
	return sum, guaranteed, burstable
}

func subsets(pods []*v1.Pod) iter.Seq[[]*v1.Pod] {
	return func(yield func([]*v1.Pod) bool) {
		for set := range 1 << len(pods) {
			var chosen []*v1.Pod
			for i, p := range pods {
				if set>>i&1 == 1 {
					chosen = append(chosen, p)
				}
			}
			if !yield(chosen) {
				return
			}
		}
	}
}
