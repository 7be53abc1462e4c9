// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Resize is what the node says to a change of the pod's resources (KEP-1287).
type Resize struct {
	// Pending is why the node has no room for the resources the spec asks for; nil if it has, or
	// nothing changed.
	Pending *Refusal
	// Allocated is the generation of the spec whose resources were allocated last; 0 for those
	// the pod was admitted with.
	Allocated int64
}

// resize brings running containers and the pod's cgroup to the size that is allocated. Containers
// that must restart for it are stopped like those whose definition changed; the cgroup shrinks
// when they are gone.
func (d *decision) resize(sandbox runtime.Sandbox) {
	if d.Resize.Allocated > d.Memory.ResizeBegun {
		d.beginResize(d.Resize.Allocated)
	}
	differs, restarting := false, false
	for _, run := range d.Runtime.Containers {
		c := resizable(d.Pod, run.Name)
		switch {
		case c == nil || run.State != runtime.Running || run.SandboxID != sandbox.ID:
		case changed(c, run):
			restarting = true
		case d.applied(c, run) != containerSize(d.Pod, c):
			differs = true
		}
	}
	if differs && !d.Memory.Resizing {
		d.beginResize(d.Pod.Generation)
	}
	// What an agent that is gone left half done, is done again.
	cgroup := d.Memory.Cgroup != nil && *d.Memory.Cgroup != podSize(d.Pod) || d.Memory.Cgroup == nil && d.Memory.Resizing
	switch {
	case restarting:
	case differs || cgroup:
		if d.mayRetry(resizeFailure) {
			d.do(Action{Kind: ResizePod})
		}
	case d.Memory.Resizing:
		d.Memory.Resizing = false
		d.tell("", v1.EventTypeNormal, "ResizeCompleted", ResizeMessage("completed", d.Pod, d.Memory.ResizeBegun, ""))
	}
}

func (d *decision) beginResize(generation int64) {
	d.Memory.Resizing, d.Memory.ResizeBegun = true, generation
	delete(d.Memory.Failures, resizeFailure)
}

// resizeConditions tell of a resize that waits, and of one that is under way. Their observed
// generation is the spec's which asked for it, not the newest.
func (d *decision) resizeConditions(s *v1.PodStatus) []v1.PodCondition {
	if IsOver(s.Phase) {
		return nil
	}
	var conditions []v1.PodCondition
	if p := d.Resize.Pending; p != nil {
		conditions = append(conditions, v1.PodCondition{
			Type: v1.PodResizePending, Reason: v1.PodReasonDeferred, Message: p.Message, ObservedGeneration: d.Pod.Generation,
		})
	}
	if d.Memory.Resizing {
		c := v1.PodCondition{Type: v1.PodResizeInProgress, ObservedGeneration: d.Memory.ResizeBegun}
		if failure, failed := d.Memory.Failures[resizeFailure]; failed {
			c.Reason, c.Message = failure.Reason, failure.Message
		}
		conditions = append(conditions, c)
	}
	for i := range conditions {
		c := &conditions[i]
		c.Status, c.LastTransitionTime = v1.ConditionTrue, metav1.NewTime(d.Now).Rfc3339Copy()
		if old := conditionOf(d.Old.Conditions, c.Type); old != nil && old.Reason == c.Reason {
			c.LastTransitionTime = old.LastTransitionTime
		}
		c.LastProbeTime = c.LastTransitionTime
	}
	return conditions
}

// ResizeMessage is the text of an event about a resize: what became of it, and the resources it is
// about.
func ResizeMessage(what string, pod *v1.Pod, generation int64, problem string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources,omitempty"`
	}
	summary := struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{Generation: generation, Error: problem}
	for _, c := range pod.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, container{c.Name, c.Resources})
	}
	for _, c := range pod.Spec.Containers {
		summary.Containers = append(summary.Containers, container{c.Name, c.Resources})
	}
	text, err := json.Marshal(summary)
	if err != nil {
		return "Pod resize " + what
	}
	return fmt.Sprintf("Pod resize %s: %s", what, text)
}
