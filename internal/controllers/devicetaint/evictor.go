// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetaint

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// evictor evicts pods.
type evictor struct {
	control.Env
	gangs   bool
	evicted *evicted

	mu sync.Mutex
	// pending has the pods that are to be evicted, now or later.
	pending map[types.NamespacedName]types.UID
}

// evicted counts the pods that were evicted because of each rule since the controller started.
type evicted struct {
	mu     sync.Mutex
	counts map[types.UID]int
}

func (e *evicted) add(rules []types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rule := range rules {
		e.counts[rule]++
	}
}

func (e *evicted) of(rule types.UID) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[rule]
}

// Reconcile evicts a pod when it is due.
func (r *evictor) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, req.NamespacedName, pod); err != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	known, err := readDevices(ctx, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	due := known.podEviction(pod, claims(ctx, r.Client, pod.Namespace), r.gangs)
	if due == nil {
		if r.forget(req.NamespacedName) == pod.UID {
			r.Events.Event(reference(pod), corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
		}
		return ctrl.Result{}, nil
	}
	r.expect(req.NamespacedName, pod.UID)
	if left := due.at.Sub(r.Clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if err := r.evict(ctx, pod); err != nil {
		return ctrl.Result{}, owned.IgnoreStale(err) // its next state wakes the controller
	}
	r.forget(req.NamespacedName)
	r.evicted.add(due.rules)
	return ctrl.Result{}, nil
}

// evict deletes a pod, and sets its condition DisruptionTarget.
func (r *evictor) evict(ctx context.Context, pod *corev1.Pod) error {
	r.Events.Event(reference(pod), corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	pods.SetDisruptionTarget(pod, disruptionReason, "Device Taint manager: deleting due to NoExecute taint", r.Clock.Now())
	if err := r.Client.Status().Update(ctx, pod); err != nil {
		return err
	}
	return r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
}

// disruptionReason is the reason of the condition DisruptionTarget of evicted pods.
const disruptionReason = "DeletionByDeviceTaintManager"

func (r *evictor) expect(key types.NamespacedName, pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[key] = pod
}

// forget returns the UID of the pod that was to be evicted under a name.
func (r *evictor) forget(key types.NamespacedName) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := r.pending[key]
	delete(r.pending, key)
	return uid
}

func reference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// readDevices reads the published devices and the rules from the cache.
func readDevices(ctx context.Context, from client.Reader) (devices, error) {
	var published resourcev1.ResourceSliceList
	var rules resourcev1.DeviceTaintRuleList
	if err := from.List(ctx, &published, client.UnsafeDisableDeepCopy); err != nil {
		return devices{}, err
	}
	if err := from.List(ctx, &rules, client.UnsafeDisableDeepCopy); err != nil {
		return devices{}, err
	}
	return devices{slices: published.Items, rules: rules.Items}, nil
}

// claims returns a function that reads a claim from the cache; it returns nil if there is none.
func claims(ctx context.Context, from client.Reader, namespace string) func(name string) *resourcev1.ResourceClaim {
	return func(name string) *resourcev1.ResourceClaim {
		claim := &resourcev1.ResourceClaim{}
		if from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		return claim
	}
}
