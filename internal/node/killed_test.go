// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/internal/node/rootdir"
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
				m.start()
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

// staticPods makes the node run the static pods of a directory, which it returns.
func (m *mortals) staticPods() string {
	dir := m.TempDir()
	m.options.Config.StaticPodPath = dir
	m.options.Decode = func(text []byte, complete func(*v1.Pod) error) ([]*v1.Pod, error) {
		p := &v1.Pod{}
		if err := yaml.Unmarshal(text, p); err != nil {
			return nil, err
		}
		return []*v1.Pod{p}, complete(p)
	}
	return dir
}

// manifest writes the manifest of a static pod, or removes it if the pod is nil.
func (m *mortals) manifest(dir string, p *v1.Pod) {
	m.Helper()
	file := filepath.Join(dir, "pod.yaml")
	if p == nil {
		if err := os.Remove(file); err != nil {
			m.Fatal(err)
		}
		return
	}
	p.Spec.DNSPolicy = v1.DNSDefault
	text, err := yaml.Marshal(p)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		m.Fatal(err)
	}
}

// mirror returns the mirror pod of the static pod, or nil.
func (m *mortals) mirror() *v1.Pod {
	p, err := m.api.CoreV1().Pods("default").Get(m.Context(), "p-"+nodeName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

// untilRuns waits until the mirror pod shows that a container with this image is ready.
func (m *mortals) untilRuns(name, image string) *v1.Pod {
	m.Helper()
	return m.settle(name, func(p *v1.Pod) bool { return podReady(p) && p.Spec.Containers[0].Image == image })
}

// TestKilledStatic: an agent that dies while it starts, replaces or stops a static pod, or while it shows that in the API, is
// followed by one that completes it.
func TestKilledStatic(t *testing.T) {
	other := "example.com/other:1"
	one, two := podOf("p", busybox("c", "")), podOf("p", busybox("c", ""))
	two.Spec.Containers[0].Image, two.Spec.Containers[0].ImagePullPolicy = other, v1.PullIfNotPresent
	one.UID, two.UID = "one", "two"
	name := "p-" + nodeName
	outcome := func(m *mortals) string {
		text := m.runtime.has() + "\n" + m.cgroupLimits() + "\n" + m.podDirs()
		if p := m.mirror(); p != nil {
			text += "\n" + podLine(p)
		}
		return text
	}
	for title, test := range map[string]struct{ before, after *v1.Pod }{"start": {nil, one}, "replacement": {one, two}, "stop": {one, nil}} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			dirs := map[*mortals]string{}
			killed(t, 5, func(m *mortals) {
				dirs[m] = m.staticPods()
				if test.before != nil {
					m.manifest(dirs[m], test.before.DeepCopy())
				}
				m.start()
				if test.before != nil {
					m.untilRuns(name, test.before.Spec.Containers[0].Image)
				}
			}, func(m *mortals) {
				if test.after == nil {
					m.manifest(dirs[m], nil)
					m.bed().untilGone(name)
					m.untilEmpty()
					return
				}
				m.manifest(dirs[m], test.after.DeepCopy())
				m.untilRuns(name, test.after.Spec.Containers[0].Image)
			}, outcome)
		})
	}
}

// TestKilledPreemption: a critical pod makes the agent evict another one, which is not evicted twice and does not run on.
func TestKilledPreemption(t *testing.T) {
	name := "p-" + nodeName
	dirs := map[*mortals]string{}
	killed(t, 5, func(m *mortals) {
		dirs[m] = m.staticPods()
		m.start()
		node, err := m.api.CoreV1().Nodes().Get(m.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			m.Fatal(err)
		}
		most := *resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()*6/10, resource.DecimalSI)
		for _, cpu := range []struct {
			name   string
			amount resource.Quantity
		}{{"victim", most}, {"bystander", resource.MustParse("10m")}} {
			p := podOf(cpu.name, busybox("c", ""))
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: cpu.amount}
			m.bed().create(p)
			m.bed().until(cpu.name, "ready", podReady)
		}
	}, func(m *mortals) {
		critical := podOf("p", busybox("c", ""))
		critical.UID = "critical"
		critical.Spec.Containers[0].Resources.Requests = m.get("victim").Spec.Containers[0].Resources.Requests
		m.manifest(dirs[m], critical)
		m.settle("victim", func(p *v1.Pod) bool { // its container exits with 0
			return p.Status.Phase == v1.PodSucceeded && conditionNamed(p, v1.PodReadyToStartContainers).Status == v1.ConditionFalse
		})
		m.untilRuns(name, critical.Spec.Containers[0].Image)
	}, func(m *mortals) string {
		return podLine(m.get("victim")) + "\n" + podLine(m.get("bystander")) + "\n" + podLine(m.get(name)) + "\n" + m.runtime.has() + "\n" + m.cgroupLimits()
	})
}

// TestKilledPods: pods with user namespaces, whose image has to be pulled, come and go.
func TestKilledPods(t *testing.T) {
	user := func(name string) *v1.Pod {
		p := podOf(name, busybox("c", ""))
		p.Spec.HostUsers = new(false)
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "example.com/"+name+":1", v1.PullIfNotPresent
		return p
	}
	outcome := func(m *mortals) string {
		list, err := m.api.CoreV1().Pods("default").List(m.Context(), metav1.ListOptions{})
		if err != nil {
			m.Fatal(err)
		}
		text := m.runtime.has() + "\n" + m.cgroupLimits() + "\n" + m.podDirs()
		for i := range list.Items {
			text += "\n" + podLine(&list.Items[i])
		}
		return text
	}
	t.Run("start", func(t *testing.T) {
		t.Parallel()
		killed(t, 5, (*mortals).start, func(m *mortals) {
			for _, name := range []string{"first", "second"} {
				m.bed().create(user(name))
			}
			for _, name := range []string{"first", "second"} {
				m.settle(name, podReady)
			}
		}, outcome)
	})
	t.Run("end", func(t *testing.T) {
		t.Parallel()
		killed(t, 5, func(m *mortals) {
			m.start()
			m.bed().create(user("first"))
			m.bed().until("first", "ready", podReady)
		}, func(m *mortals) {
			m.bed().beginDelete("first")
			m.bed().create(user("third"))
			m.bed().untilGone("first")
			m.settle("third", podReady)
			m.until("no directory of the first pod", func() bool { return strings.Count(m.podDirs(), " ") == 0 })
		}, outcome)
	})
}

func (m *mortals) get(name string) *v1.Pod {
	m.Helper()
	p, err := m.api.CoreV1().Pods("default").Get(m.Context(), name, metav1.GetOptions{})
	if err != nil {
		m.Fatal(err)
	}
	return p
}

// until waits for a condition.
func (m *mortals) until(what string, holds func() bool) {
	m.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			list, err := m.api.CoreV1().Pods("default").List(m.Context(), metav1.ListOptions{})
			m.Fatalf("not %s: %s\n%v %+v", what, m.runtime.has(), err, list)
		}
	}
}

// untilEmpty waits until nothing of any pod is left.
func (m *mortals) untilEmpty() {
	m.Helper()
	m.until("nothing left", func() bool { return m.runtime.has() == "[]" && m.podDirs() == "" })
}

// podDirs lists the directories of pods.
func (m *mortals) podDirs() string {
	entries, _ := os.ReadDir(rootdir.Layout{Root: m.options.RootDir}.PodsDir())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// settle waits until a pod is in a state and the agents have changed nothing for a moment.
func (m *mortals) settle(name string, wanted func(*v1.Pod) bool) (p *v1.Pod) {
	m.Helper()
	for last := ""; ; time.Sleep(20 * time.Millisecond) {
		m.until(name+" as wanted", func() (is bool) {
			var err error
			p, err = m.api.CoreV1().Pods("default").Get(m.Context(), name, metav1.GetOptions{})
			return err == nil && wanted(p)
		})
		m.mu.Lock()
		now := fmt.Sprint(p.ResourceVersion, m.runtime.has(), m.lives)
		m.mu.Unlock()
		if now == last {
			return p
		}
		last = now
	}
}
