// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/source"
)

// model is a runtime with the workers of one agent. A pod runs from Update on, and its worker removes it once it is told to.
type model struct {
	*testing.T
	runs     map[types.UID]*runtime.Pod // survives agents
	stopping map[types.UID]*v1.Pod      // pods that are being deleted
	orphans  map[types.UID]bool         // pods that are to be removed
	started  map[types.UID]int
	mirrored map[string]*v1.Pod
	agent    *Pods
}

func (m *model) Update(p *v1.Pod, inRuntime bool) {
	if p.DeletionTimestamp != nil {
		m.stopping[p.UID] = p
		return
	}
	if m.runs[p.UID] != nil {
		if !inRuntime {
			m.Errorf("%s starts although it runs", p.UID)
		}
		return
	}
	for _, other := range m.runs {
		if other.Name == p.Name {
			m.Errorf("%s and %s run, both as %s", p.UID, other.UID, p.Name)
		}
	}
	m.runs[p.UID] = &runtime.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
	m.started[p.UID]++
}

func (m *model) Deleted(p *v1.Pod)              { m.orphans[p.UID] = true }
func (m *model) RemoveOrphan(seen *runtime.Pod) { m.orphans[seen.UID] = true }
func (m *model) Changed(p *v1.Pod)              { m.mirrored[p.Name] = p }
func (m *model) Gone(_, name string)            { delete(m.mirrored, name) }

// work lets one worker finish, if one has something to do.
func (m *model) work() (worked bool) {
	for uid, p := range m.stopping {
		delete(m.stopping, uid)
		if err := m.agent.Delete(context.Background(), p); err != nil {
			m.Error(err)
		}
		return true
	}
	for uid := range m.orphans {
		delete(m.orphans, uid)
		delete(m.runs, uid)
		m.agent.Removed(uid)
		return true
	}
	return false
}

// restart replaces the agent by a new one, which finds what the former one left.
func (m *model) restart() {
	m.stopping, m.orphans, m.mirrored = map[types.UID]*v1.Pod{}, map[types.UID]bool{}, map[string]*v1.Pod{}
	m.agent = New(Options{
		Sources: []string{source.File, source.HTTP}, Workers: m, Mirrors: m,
		Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), Duplicate: func(*v1.Pod) {},
	})
	var left []*runtime.Pod
	for _, p := range m.runs {
		left = append(left, p)
	}
	m.agent.Adopt(left)
}

// After any edits of the sources, and restarts of the agent between any two steps, exactly the declared pods run and are
// shown in the API. At no time run two pods with one name.
func TestSources(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		m := &model{T: t, runs: map[types.UID]*runtime.Pod{}, started: map[types.UID]int{}}
		declared := map[string][]*v1.Pod{source.File: {}, source.HTTP: {}}
		m.restart()
		read := map[string]bool{}
		for range 60 {
			switch from := []string{source.File, source.HTTP}[random.IntN(2)]; random.IntN(6) {
			case 0, 1:
				declared[from] = randomPods(random, from)
				m.agent.Set(from, declared[from])
				read[from] = true
			case 2:
				m.restart()
				read = map[string]bool{}
			case 3:
				m.agent.Set(from, declared[from])
				read[from] = true
			default:
				m.work()
			}
		}
		for from, pods := range declared {
			m.agent.Set(from, pods)
		}
		for m.work() {
		}
		m.check(declared)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomPods(random *rand.Rand, from string) (pods []*v1.Pod) {
	for _, name := range []string{"a", "b", "c"} {
		if version := random.IntN(3); version > 0 {
			pods = append(pods, named(name, fmt.Sprint(from, name, version)))
		}
	}
	return pods
}

// check compares what runs with what is declared. The file has precedence.
func (m *model) check(declared map[string][]*v1.Pod) {
	want := map[string]types.UID{}
	for _, from := range []string{source.HTTP, source.File} {
		for _, p := range declared[from] {
			want[p.Name] = p.UID
		}
	}
	if len(m.runs) != len(want) || len(m.mirrored) != len(want) {
		m.Errorf("%d pods run and %d are shown, want %d", len(m.runs), len(m.mirrored), len(want))
	}
	for name, uid := range want {
		if m.runs[uid] == nil || m.mirrored[name] == nil || m.mirrored[name].UID != uid || !m.agent.Holds(uid) {
			m.Errorf("%s does not run, or is not shown", uid)
		}
	}
}

// A pod that an earlier agent left keeps running if its manifest is the same, even before the other source has been read.
func TestAdopted(t *testing.T) {
	m := &model{T: t, runs: map[types.UID]*runtime.Pod{}, started: map[types.UID]int{}}
	m.restart()
	m.agent.Set(source.File, []*v1.Pod{named("a", "1"), named("b", "1b")})
	m.restart()
	m.agent.Set(source.File, []*v1.Pod{named("a", "1")})
	for m.work() {
	}
	if m.runs["1b"] == nil {
		t.Error("a pod was removed before all sources were read")
	}
	m.agent.Set(source.HTTP, nil)
	for m.work() {
	}
	if m.runs["1b"] != nil || m.started["1"] != 1 {
		t.Errorf("the pod without manifest runs: %t; the other one was started %d times", m.runs["1b"] != nil, m.started["1"])
	}
	select {
	case <-m.agent.Read():
	default:
		t.Error("all sources were read")
	}
}

// Write stores a status, announces it, and ignores a former pod of the name.
func TestWrite(t *testing.T) {
	m := &model{T: t, runs: map[types.UID]*runtime.Pod{}, started: map[types.UID]int{}}
	m.restart()
	m.agent.Set(source.File, []*v1.Pod{named("a", "1")})
	status := v1.PodStatus{Phase: v1.PodRunning}
	written, err := m.agent.Write(t.Context(), named("a", "1"), status)
	if err != nil || written.Status.Phase != v1.PodRunning || m.mirrored["a"].Status.Phase != v1.PodRunning {
		t.Errorf("wrote %v, %v", written, err)
	}
	again, err := m.agent.Write(t.Context(), named("a", "1"), status)
	if err != nil || again.ResourceVersion != written.ResourceVersion {
		t.Errorf("the same status is another version: %v", err)
	}
	if gone, err := m.agent.Write(t.Context(), named("a", "2"), status); gone != nil || err != nil {
		t.Errorf("wrote the status of a pod that does not exist: %v, %v", gone, err)
	}
}

// A pod whose manifest returns before the pod is gone starts again, and knows the runs before. Another pod does not.
func TestReturns(t *testing.T) {
	for next, want := range map[types.UID]int{"a": 1, "b": 0} {
		m := &model{T: t, runs: map[types.UID]*runtime.Pod{}, started: map[types.UID]int{}}
		m.restart()
		pod := func(uid types.UID) []*v1.Pod {
			return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid, Annotations: map[string]string{}}}}
		}
		m.agent.Set(source.HTTP, nil)
		m.agent.Set(source.File, pod("a"))
		status := v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "x://1"}}}
		if _, err := m.agent.Write(t.Context(), m.mirrored["web"], status); err != nil {
			t.Fatal(err)
		}
		m.agent.Set(source.File, nil)
		m.agent.Set(source.File, pod(next))
		for m.work() {
		}
		if got := m.mirrored["web"].Status; len(got.ContainerStatuses) != want || got.Phase != "" {
			t.Errorf("then %s: starts with the status %+v", next, got)
		}
	}
}
