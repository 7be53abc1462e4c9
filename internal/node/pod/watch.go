// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Watcher gets the changes of pods, for clients on the node that watch them. *podsapi.Server implements it. Its methods do not
// wait for clients.
type Watcher interface {
	// Watched reports whether a client watches pods. If none does, changes need not be found.
	Watched() bool
	// PodChanged gets a pod that is new or has changed, with its newest status. deleted is set if the API no longer has it.
	PodChanged(pod *v1.Pod, deleted bool)
	// PodEnded gets a pod of which nothing runs and nothing is held any more, or that is gone. It may be called again.
	PodEnded(uid types.UID)
}

// published is what a worker has published last. pod is nil before the first time.
type published struct {
	pod      *v1.Pod
	status   v1.PodStatus
	finished bool
}

// notify notifies the Watcher of a decision. As upstream's kubelet, a pod counts as ended when its containers, volumes and
// cgroup are gone, even if the API still has it; but a rejected pod, which never had any, stays until it is deleted.
func (w *Worker) notify(pod *v1.Pod, deleted bool, before published, out Output) {
	watcher := w.parts.Watcher
	if watcher == nil || !watcher.Watched() {
		return
	}
	ends := out.Finished && !w.Rejected()
	if ends && before.finished {
		return
	}
	if before.pod == nil || !sameObject(before.pod, pod) || !equality.Semantic.DeepEqual(before.status, out.Status) {
		changed := *pod
		changed.Status = out.Status
		watcher.PodChanged(&changed, deleted)
	}
	if ends {
		watcher.PodEnded(pod.UID)
	}
}

// sameObject reports whether two versions of a pod differ at most in what each write of a status changes as well. A status of
// this node is no news when the API returns it.
func sameObject(a, b *v1.Pod) bool {
	if a == b {
		return true
	}
	one, other := a.ObjectMeta, b.ObjectMeta
	one.ResourceVersion, other.ResourceVersion = "", ""
	one.ManagedFields, other.ManagedFields = nil, nil
	return equality.Semantic.DeepEqual(one, other) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// VerifiedPod returns the pod as Pod does. If this agent has not observed the pod yet, its status is that of an earlier agent:
// the pod is not shown as ready then, as upstream's kubelet does not (getEffectivePodStatus in pkg/kubelet/apis/pods).
func (w *Worker) VerifiedPod() *v1.Pod {
	w.mu.Lock()
	isVerified := w.last != nil
	w.mu.Unlock()
	if isVerified {
		return w.Pod()
	}
	pod := w.Pod().DeepCopy()
	if pod.Status.Phase == "" {
		pod.Status.Phase = v1.PodPending
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, "ContainersNotReady", "Kubelet is initializing pod containers"
		}
	}
	return pod
}
