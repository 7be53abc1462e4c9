// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

// Options configure a scheduler.
type Options struct {
	// Client acts as the user system:kube-scheduler. It should have no rate limit.
	Client kubernetes.Interface
	// Informers have pods, nodes, namespaces, disruption budgets, and the objects of storage and
	// devices. The caller starts them, after New.
	Informers informers.SharedInformerFactory
	// Recorder records events. If it is nil, they are written with Client.
	Recorder events.EventRecorder
	// Bind creates the binding of a pod, and Events writes events. Nil: Client does.
	Bind   func(context.Context, *v1.Binding) error
	Events events.EventSink
	// Gangs is set if PodGroups are served. If it is not, the group of a pod is ignored.
	Gangs bool
	// Clock is the source of time; nil means the real clock.
	Clock clock.Clock
}

// Scheduler schedules the pods whose spec.schedulerName is default-scheduler.
type Scheduler struct {
	Options
	machine *machine
	inbox   *inbox
	ready   chan struct{}
}

// New returns a scheduler. It does nothing before Run.
func New(opts Options) (*Scheduler, error) {
	if opts.Client == nil || opts.Informers == nil {
		return nil, errors.New("scheduler: Options.Client or Options.Informers is missing")
	}
	s := &Scheduler{Options: opts, inbox: newInbox(), ready: make(chan struct{})}
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	if s.Bind == nil {
		s.Bind = func(ctx context.Context, binding *v1.Binding) error {
			return s.Client.CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
		}
	}
	if s.Events == nil {
		s.Events = &events.EventSinkImpl{Interface: s.Client.EventsV1()}
	}
	// A factory starts only the informers that were requested before.
	core := s.Informers.Core().V1()
	core.Nodes().Informer()
	core.Pods().Informer()
	core.Namespaces().Informer()
	core.PersistentVolumeClaims().Informer()
	core.PersistentVolumes().Informer()
	s.Informers.Policy().V1().PodDisruptionBudgets().Informer()
	storage := s.Informers.Storage().V1()
	storage.StorageClasses().Informer()
	storage.CSINodes().Informer()
	storage.CSIDrivers().Informer()
	storage.CSIStorageCapacities().Informer()
	storage.VolumeAttachments().Informer()
	resource := s.Informers.Resource().V1()
	resource.ResourceClaims().Informer()
	resource.DeviceClasses().Informer()
	resource.ResourceSlices().Informer()
	resource.DeviceTaintRules().Informer()
	if s.Gangs {
		s.Informers.Scheduling().V1beta1().PodGroups().Informer()
	}
	s.machine = newMachine(s.Clock, s.budgets)
	return s, nil
}

func (s *Scheduler) budgets() []*policyv1.PodDisruptionBudget {
	// A lister reads from a cache, and never fails.
	budgets, _ := s.Informers.Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
	return budgets
}

// Ready returns a channel that is closed when the scheduler's caches are synced and it schedules.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Run schedules until the context is done, and then returns nil. Call it once.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if s.Recorder == nil {
		sink := newPatientSink(s.Events, clock.RealClock{})
		go sink.run(ctx)
		broadcaster := events.NewBroadcaster(sink)
		defer broadcaster.Shutdown()
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			return fmt.Errorf("scheduler: cannot record events: %w", err)
		}
		s.Recorder = broadcaster.NewRecorder(scheme.Scheme, v1.DefaultSchedulerName)
	}
	unwatch, err := s.watch(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the informers have stopped as well
	case err != nil:
		return fmt.Errorf("scheduler: cannot watch the cluster: %w", err)
	}
	defer unwatch()
	if ctx.Err() != nil {
		return nil
	}
	effects := startLanes(ctx)
	defer effects.wait()
	defer stop()
	s.loop(ctx, effects)
	return nil
}

// loop applies changes to the machine and passes on its decisions. Only it uses the machine.
func (s *Scheduler) loop(ctx context.Context, effects *lanes) {
	for first := true; ctx.Err() == nil; first = false {
		for _, change := range s.inbox.take() {
			change(s.machine)
		}
		if first {
			close(s.ready)
		}
		if decision, found := s.machine.next(); found {
			s.execute(ctx, effects, decision)
			continue
		}
		s.waitForWork(ctx)
	}
}

// waitForWork waits for a change, or until the machine needs attention.
func (s *Scheduler) waitForWork(ctx context.Context) {
	var due <-chan time.Time
	if next, found := s.machine.due(); found {
		timer := s.Clock.NewTimer(next.Sub(s.Clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-due:
	case <-s.inbox.notify:
	case <-ctx.Done():
	}
}
