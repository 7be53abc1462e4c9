// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/source"
)

// The pauses before a failed request is repeated.
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = time.Minute
)

// Options are what Mirrors depends on.
type Options struct {
	Client kubernetes.Interface
	// Status writes the status of a mirror pod.
	Status pod.Status
	// Node returns the Node. It has no UID before it is registered.
	Node  func() *v1.Node
	Clock clock.WithTicker
}

// Mirrors keeps the mirror pods of a node. All methods but Run are prompt and safe for concurrent use.
type Mirrors struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu       sync.Mutex
	states   map[types.NamespacedName]state
	allKnown bool
}

// New returns Mirrors without pods.
func New(options Options) *Mirrors {
	return &Mirrors{
		options: options, states: map[types.NamespacedName]state{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryLast),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Clock: options.Clock}),
	}
}

// Changed takes a static pod that is new or has a new status.
func (m *Mirrors) Changed(static *v1.Pod) {
	m.change(nameOf(static), func(s *state) { s.static = static })
}

// Gone is called when no static pod has the name any more.
func (m *Mirrors) Gone(namespace, name string) {
	m.change(types.NamespacedName{Namespace: namespace, Name: name}, func(s *state) { s.static = nil })
}

// Seen takes a mirror pod of the API that is new or has changed, unless a newer one is known.
func (m *Mirrors) Seen(mirror *v1.Pod) {
	m.change(nameOf(mirror), func(s *state) {
		if s.mirror == nil || pod.IsNewer(mirror, s.mirror) {
			s.mirror = mirror
		}
	})
}

// Deleted is called when the API no longer has a mirror pod.
func (m *Mirrors) Deleted(mirror *v1.Pod) {
	m.change(nameOf(mirror), func(s *state) {
		if s.mirror != nil && s.mirror.UID == mirror.UID {
			s.mirror = nil
		}
	})
}

// AllKnown is called once all static pods of the node are known. From then on, mirror pods without one are deleted.
func (m *Mirrors) AllKnown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allKnown = true
	for name := range maps.Keys(m.states) {
		m.queue.Add(name)
	}
}

func (m *Mirrors) change(name types.NamespacedName, change func(*state)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[name]
	change(&s)
	if s == (state{}) {
		delete(m.states, name)
		return
	}
	m.states[name] = s
	m.queue.Add(name)
}

// Run makes the API show the static pods, until ctx ends. Before, Seen must have got all mirror pods of the API.
func (m *Mirrors) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, m.queue.ShutDown)
	defer stop()
	for {
		name, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		if err := m.reconcile(ctx, name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot show a static pod in the API, will retry", "pod", name)
			m.queue.AddRateLimited(name)
		} else {
			m.queue.Forget(name)
		}
		m.queue.Done(name)
	}
}

func (m *Mirrors) reconcile(ctx context.Context, name types.NamespacedName) error {
	m.mu.Lock()
	s, allKnown := m.states[name], m.allKnown
	m.mu.Unlock()
	switch s.next(allKnown) {
	case create:
		return m.create(ctx, s.static)
	case remove:
		return m.remove(ctx, s.mirror)
	case write:
		return m.write(ctx, s)
	case nothing:
	}
	return nil
}

// create creates the mirror pod of a static pod, with the Node as its owner, as the admission plugin NodeRestriction requires.
func (m *Mirrors) create(ctx context.Context, static *v1.Pod) error {
	node := m.options.Node()
	switch {
	case node.UID == "":
		return errors.New("the node is not registered yet")
	case node.DeletionTimestamp != nil:
		return errors.New("the Node is being deleted")
	}
	isController := true
	mirror := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: static.Namespace, Name: static.Name, Labels: static.Labels,
			Annotations: maps.Clone(static.Annotations), Finalizers: static.Finalizers,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &isController}},
		},
		Spec: *static.Spec.DeepCopy(),
	}
	mirror.Annotations[source.MirrorAnnotation] = static.Annotations[source.HashAnnotation]
	created, err := m.options.Client.CoreV1().Pods(static.Namespace).Create(ctx, mirror, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create mirror pod: %w", err)
	}
	// The watch may be ahead, or not know the pod yet.
	m.change(nameOf(static), func(s *state) {
		if s.mirror == nil {
			s.mirror = created
		}
	})
	return nil
}

// write writes the status of a static pod to its mirror pod.
func (m *Mirrors) write(ctx context.Context, s state) error {
	written, err := m.options.Status.Write(ctx, s.mirror, pod.MirrorStatus(s.mirror, s.static.Status))
	switch {
	case err != nil:
		return err
	case written == nil:
		m.Deleted(s.mirror)
	case written != s.mirror:
		m.wrote(written)
	}
	return nil
}

// wrote keeps the mirror pod that a write has returned: the next patch must remove what this one has added, which the watch may
// not show yet. A pod that the watch has shown as deleted stays deleted.
func (m *Mirrors) wrote(mirror *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[nameOf(mirror)]
	if s.mirror != nil && s.mirror.UID == mirror.UID && pod.IsNewer(mirror, s.mirror) {
		s.mirror = mirror
		m.states[nameOf(mirror)] = s
	}
}

func (m *Mirrors) remove(ctx context.Context, mirror *v1.Pod) error {
	err := m.options.Client.CoreV1().Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      metav1.NewUIDPreconditions(string(mirror.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		m.Deleted(mirror)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete mirror pod: %w", err)
	}
	return nil
}

func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}
