// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// watch posts the informers' changes to the inbox, and returns when the initial objects have been
// posted. The returned function stops it.
func (s *Scheduler) watch(ctx context.Context) (func(), error) {
	core := s.Informers.Core().V1()
	var undo []func() error
	var synced []cache.DoneChecker
	var failed error
	add := func(informer cache.SharedIndexInformer, set func(obj any), remove func(obj any)) {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    set,
			UpdateFunc: func(old, obj any) { s.update(old, obj, set, remove) },
			DeleteFunc: remove,
		})
		if err != nil {
			failed = errors.Join(failed, err)
			return
		}
		undo = append(undo, func() error { return informer.RemoveEventHandler(handler) })
		synced = append(synced, handler.HasSyncedChecker())
	}
	add(core.Nodes().Informer(), s.setNode, s.removeNode)
	add(core.Namespaces().Informer(), s.setNamespace, s.removeNamespace)
	// Preemption reads the budgets when it needs them. It must not run before they are known.
	add(s.Informers.Policy().V1().PodDisruptionBudgets().Informer(), func(any) {}, func(any) {})
	storage := s.Informers.Storage().V1()
	add(core.PersistentVolumeClaims().Informer(), post(s, (*machine).setClaim), postLast(s, (*machine).removeClaim))
	add(core.PersistentVolumes().Informer(), post(s, (*machine).setVolume), postLast(s, (*machine).removeVolume))
	add(storage.StorageClasses().Informer(), post(s, (*machine).setClass), postLast(s, (*machine).removeClass))
	add(storage.CSINodes().Informer(), post(s, (*machine).setCSINode), postLast(s, (*machine).removeCSINode))
	add(storage.CSIDrivers().Informer(), post(s, (*machine).setDriver), postLast(s, (*machine).removeDriver))
	add(storage.CSIStorageCapacities().Informer(), post(s, (*machine).setCapacity), postLast(s, (*machine).removeCapacity))
	add(storage.VolumeAttachments().Informer(), post(s, (*machine).setAttachment), postLast(s, (*machine).removeAttachment))
	resource := s.Informers.Resource().V1()
	add(resource.DeviceClasses().Informer(), post(s, (*machine).setDeviceClass), postLast(s, (*machine).removeDeviceClass))
	add(resource.ResourceSlices().Informer(), post(s, (*machine).setSlice), postLast(s, (*machine).removeSlice))
	add(resource.DeviceTaintRules().Informer(), post(s, (*machine).setTaintRule), postLast(s, (*machine).removeTaintRule))
	add(resource.ResourceClaims().Informer(), post(s, (*machine).setResourceClaim), postLast(s, (*machine).removeResourceClaim))
	if s.Gangs {
		add(s.Informers.Scheduling().V1beta1().PodGroups().Informer(), post(s, (*machine).setGroup), postLast(s, (*machine).removeGroup))
	}
	add(core.Pods().Informer(), s.setPod, s.removePod)
	unwatch := func() {
		for _, f := range undo {
			// The informer may have stopped, and has no handlers then.
			_ = f()
		}
	}
	if failed != nil {
		unwatch()
		return nil, failed
	}
	cache.WaitFor(ctx, "", synced...)
	return unwatch, nil
}

// update handles an update whose UID changed as a deletion and a creation, which the informer saw
// as one.
func (s *Scheduler) update(old, obj any, set, remove func(any)) {
	before, isPod := old.(*v1.Pod)
	if after, _ := obj.(*v1.Pod); isPod && after.UID != before.UID {
		remove(old)
	}
	set(obj)
}

// post returns a handler that posts an object's change to the inbox.
func post[T any](s *Scheduler, apply func(*machine, T)) func(any) {
	return func(obj any) {
		object := obj.(T)
		s.inbox.post(func(m *machine) { apply(m, object) })
	}
}

// postLast returns a handler that posts an object's deletion to the inbox.
func postLast[T any](s *Scheduler, apply func(*machine, T)) func(any) {
	return func(obj any) {
		if object, ok := last(obj).(T); ok {
			s.inbox.post(func(m *machine) { apply(m, object) })
		}
	}
}

func (s *Scheduler) setNode(obj any) {
	node := obj.(*v1.Node)
	s.inbox.post(func(m *machine) { m.setNode(node) })
}

func (s *Scheduler) removeNode(obj any) {
	if node, ok := last(obj).(*v1.Node); ok {
		s.inbox.post(func(m *machine) { m.removeNode(node.Name) })
	}
}

func (s *Scheduler) setNamespace(obj any) {
	namespace := obj.(*v1.Namespace)
	s.inbox.post(func(m *machine) { m.setNamespace(namespace.Name, namespace.Labels) })
}

func (s *Scheduler) removeNamespace(obj any) {
	if namespace, ok := last(obj).(*v1.Namespace); ok {
		s.inbox.post(func(m *machine) { m.cluster.RemoveNamespace(namespace.Name) })
	}
}

func (s *Scheduler) setPod(obj any) {
	pod := model.NewPod(obj.(*v1.Pod))
	if !s.Gangs {
		pod.Group = types.NamespacedName{}
	}
	s.inbox.post(func(m *machine) { m.setPod(pod) })
}

func (s *Scheduler) removePod(obj any) {
	if pod, ok := last(obj).(*v1.Pod); ok {
		s.inbox.post(func(m *machine) { m.removePod(pod.UID) })
	}
}

// last returns the last known state of a deleted object, even if the watch missed its deletion.
func last(obj any) any {
	if unknown, missed := obj.(cache.DeletedFinalStateUnknown); missed {
		return unknown.Obj
	}
	return obj
}
