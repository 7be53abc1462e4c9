// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func limits(cpu, memory string) v1.ResourceRequirements {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// resizedTo changes the resources of a pod's containers in the API, in their order, and of the pod, if it has any.
func (m *mortals) resizedTo(name string, pod *v1.ResourceRequirements, containers ...v1.ResourceRequirements) {
	m.Helper()
	pods := m.api.CoreV1().Pods("default")
	for {
		p, err := pods.Get(m.Context(), name, metav1.GetOptions{})
		if err != nil {
			m.Fatal(err)
		}
		p.Generation++
		p.Spec.Resources = pod
		for i := range containers {
			p.Spec.Containers[i].Resources = containers[i]
		}
		if _, err = pods.Update(m.Context(), p, metav1.UpdateOptions{}); err == nil {
			return
		}
	}
}

// TestKilledResize: a resize that an agent began is completed by the next one, wherever the first one was.
func TestKilledResize(t *testing.T) {
	old := []v1.ResourceRequirements{limits("100m", "64Mi"), limits("200m", "128Mi")}
	for name, test := range map[string]struct {
		pod, podLater *v1.ResourceRequirements
		before, later []v1.ResourceRequirements
		policy        v1.ResourceResizeRestartPolicy
	}{
		"in place":     {before: old, later: []v1.ResourceRequirements{limits("150m", "80Mi"), limits("100m", "32Mi")}},
		"shrinks":      {before: old, later: []v1.ResourceRequirements{limits("50m", "32Mi"), limits("100m", "64Mi")}},
		"by a restart": {before: old, later: []v1.ResourceRequirements{limits("150m", "80Mi"), limits("200m", "128Mi")}, policy: v1.RestartContainer},
		"requests":     {before: []v1.ResourceRequirements{{Requests: old[0].Requests}, {}}, later: []v1.ResourceRequirements{{Requests: old[1].Requests}, {}}},
		"of the pod": {
			before: []v1.ResourceRequirements{{}, {}}, later: []v1.ResourceRequirements{{}, {}},
			pod: new(limits("200m", "64Mi")), podLater: new(limits("100m", "32Mi")),
		},
		"of the pod alone": {before: old, later: old, pod: new(limits("400m", "256Mi")), podLater: new(limits("300m", "192Mi"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepare := func(m *mortals) {
				p := podOf("p", busybox("a", ""), busybox("b", ""))
				p.Generation, p.Spec.Resources = 1, test.pod
				for i := range p.Spec.Containers {
					p.Spec.Containers[i].Resources = test.before[i]
					if test.policy != "" {
						p.Spec.Containers[i].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: test.policy}}
					}
				}
				other := podOf("other", busybox("c", ""))
				other.Spec.Containers[0].Resources.Requests = limits("300m", "1Mi").Requests
				m.bed().create(other)
				m.bed().create(p)
				m.bed().until("other", "ready", podReady)
				m.bed().until("p", "ready", podReady)
			}
			story := func(m *mortals) {
				m.resizedTo("p", test.podLater, test.later...)
				m.settle("p", func(p *v1.Pod) bool {
					return p.Status.ObservedGeneration == 2 && podReady(p) && conditionNamed(p, v1.PodResizeInProgress).Type == ""
				})
			}
			outcome := func(m *mortals) string {
				return podLine(m.bed().until("p", "ready", podReady)) + "\n" + m.runtime.has() + "\n" + m.cgroupLimits()
			}
			killed(t, 3, prepare, story, outcome)
		})
	}
}

// settle waits until a pod is in a state and the agents have changed nothing for a moment.
func (m *mortals) settle(name string, wanted func(*v1.Pod) bool) {
	m.Helper()
	m.bed().until(name, "as wanted", wanted)
	for last := ""; ; {
		time.Sleep(20 * time.Millisecond)
		p := m.bed().until(name, "as wanted", wanted)
		now := p.ResourceVersion + m.runtime.has()
		m.mu.Lock()
		now += fmt.Sprint(m.lives)
		m.mu.Unlock()
		if now == last {
			return
		}
		last = now
	}
}
