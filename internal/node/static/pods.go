// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/source"
)

// Workers are the workers of the node's pods; workers.Set implements it. Their methods must not wait for a method of Pods.
type Workers interface {
	Update(p *v1.Pod, inRuntime bool)
	Deleted(p *v1.Pod)
	RemoveOrphan(seen *runtime.Pod)
}

// Mirrors show static pods in the API. Their methods must not block.
type Mirrors interface {
	// Changed takes a static pod that is new or has a new status.
	Changed(p *v1.Pod)
	// Gone is called when no static pod has the name any more.
	Gone(namespace, name string)
}

// Options are what Pods depends on.
type Options struct {
	// Sources are the sources that will call Set, in the order of their precedence.
	Sources []string
	Workers Workers
	Mirrors Mirrors
	Clock   clock.PassiveClock
	// Duplicate is called once for each pod that is ignored because another one has its name.
	Duplicate func(p *v1.Pod)
}

// Pods are the static pods of a node. It implements pod.Status for them. All methods are safe for concurrent use.
type Pods struct {
	options Options
	read    chan struct{}
	adopted chan struct{}

	mu         sync.Mutex
	found      map[string][]*v1.Pod // by source, once it has been read
	slots      map[fullName]*slot
	duplicates map[types.UID]bool
	version    int64
}

// New returns Pods without pods. Adopt must be called before any other method.
func New(options Options) *Pods {
	return &Pods{
		options: options, read: make(chan struct{}), adopted: make(chan struct{}),
		found: map[string][]*v1.Pod{}, slots: map[fullName]*slot{}, duplicates: map[types.UID]bool{},
	}
}

// Read is closed once all sources have been read: all static pods are known.
func (s *Pods) Read() <-chan struct{} { return s.read }

// Adopted is closed once Adopt has been called. Before, Holds does not know the pods that an earlier agent left.
func (s *Pods) Adopted() <-chan struct{} { return s.adopted }

// Adopt takes the static pods that an earlier agent left in the runtime.
func (s *Pods) Adopt(left []*runtime.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seen := range left {
		s.slots[fullName{seen.Namespace, seen.Name}] = &slot{left: seen}
	}
	close(s.adopted)
	s.advanceAll()
}

// Set takes all pods that a source declares now.
func (s *Pods) Set(source string, pods []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[source] = pods
	desired := s.desired()
	for name, p := range desired {
		if s.slots[name] == nil {
			s.slots[name] = &slot{}
		}
		s.slots[name].desired = p
	}
	for name, slot := range s.slots {
		slot.desired = desired[name]
	}
	s.advanceAll()
}

// desired returns the pods of all sources by name. If several have one name, the first one has it.
func (s *Pods) desired() map[fullName]*v1.Pod {
	desired, duplicates := map[fullName]*v1.Pod{}, map[types.UID]bool{}
	for _, source := range s.options.Sources {
		for _, p := range s.found[source] {
			if desired[nameOf(p)] == nil {
				desired[nameOf(p)] = p
				continue
			}
			duplicates[p.UID] = true
			if !s.duplicates[p.UID] {
				s.options.Duplicate(p)
			}
		}
	}
	s.duplicates = duplicates
	return desired
}

// advanceAll takes the next step of each pod. Pods that are to stop are stopped first, which makes room for others.
func (s *Pods) advanceAll() {
	names := slices.SortedFunc(maps.Keys(s.slots), compareNames)
	for _, stops := range []bool{true, false} {
		for _, name := range names {
			slot := s.slots[name]
			if slot == nil {
				continue
			}
			if next := slot.next(s.allRead()); (next == stop || next == remove) == stops {
				s.do(next, name, slot)
			}
		}
	}
	if !s.allRead() {
		return
	}
	// Only now have Mirrors all pods: they delete mirror pods without one.
	select {
	case <-s.read:
	default:
		close(s.read)
	}
}

func (s *Pods) allRead() bool { return len(s.found) == len(s.options.Sources) }

// do takes a step.
func (s *Pods) do(next step, name fullName, slot *slot) {
	switch next {
	case start, adopt:
		inRuntime := next == adopt
		slot.left = nil
		p := slot.desired.DeepCopy()
		p.Status = slot.runsBefore()
		p.Annotations[source.SeenAnnotation] = s.options.Clock.Now().Format(seenFormat)
		p.CreationTimestamp = metav1.NewTime(s.options.Clock.Now()).Rfc3339Copy()
		s.publish(slot, p, inRuntime)
	case stop:
		slot.stopping = true
		p := slot.current.DeepCopy()
		now := metav1.NewTime(s.options.Clock.Now()).Rfc3339Copy()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, p.Spec.TerminationGracePeriodSeconds
		s.publish(slot, p, true)
	case remove:
		slot.stopping = true
		s.options.Workers.RemoveOrphan(slot.left)
	case nothing:
		if slot.isEmpty() {
			delete(s.slots, name)
			s.options.Mirrors.Gone(name.namespace, name.name)
		}
	}
}

// seenFormat is the format of AnnotationSeen.
const seenFormat = "2006-01-02T15:04:05.000000000Z07:00"

// publish makes a pod the newest one of its name, and announces it.
func (s *Pods) publish(slot *slot, p *v1.Pod, inRuntime bool) {
	s.version++
	p.ResourceVersion = strconv.FormatInt(s.version, 10)
	slot.current = p
	s.options.Workers.Update(p, inRuntime)
	s.options.Mirrors.Changed(p)
}

// Removed is called when a worker has ended, because nothing of its pod is left on the node.
func (s *Pods) Removed(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, slot := range s.slots {
		if slot.holds() == uid {
			slot.ended = slot.current
			slot.current, slot.left, slot.stopping = nil, nil, false
			s.do(slot.next(s.allRead()), name, slot)
			return
		}
	}
}

// Holds reports whether a pod is static and has, or may get, a worker.
func (s *Pods) Holds(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.slots {
		if slot.holds() == uid || slot.desired != nil && slot.desired.UID == uid {
			return true
		}
	}
	return false
}

// Write implements pod.Status: it stores the status.
func (s *Pods) Write(_ context.Context, p *v1.Pod, status v1.PodStatus) (*v1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[nameOf(p)]
	if slot == nil || slot.current == nil || slot.current.UID != p.UID {
		return nil, nil
	}
	if !equality.Semantic.DeepEqual(slot.current.Status, status) {
		updated := slot.current.DeepCopy()
		updated.Status = *status.DeepCopy()
		s.publish(slot, updated, true)
	}
	return slot.current, nil
}

// Delete implements pod.Status: the pod has stopped and can be removed.
func (s *Pods) Delete(_ context.Context, p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.slots[nameOf(p)]; slot != nil && slot.current != nil && slot.current.UID == p.UID {
		s.options.Workers.Deleted(slot.current)
	}
	return nil
}
