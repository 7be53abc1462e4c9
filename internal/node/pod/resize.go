// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Resize is the node's answer to a change of the pod's resources (KEP-1287).
type Resize struct {
	// Pending is why the node cannot allocate the resources in the API's spec: never, if its reason is Infeasible, else now.
	// It is nil if it can or if nothing changed.
	Pending *Refusal
	// Allocated is the generation of the spec whose resources were allocated last; 0 if those are
	// still the resources that the pod was admitted with.
	Allocated int64
}

// resize gives running containers and the pod's cgroup their allocated size. A container that must
// restart for it is stopped like one whose definition changed; the cgroup shrinks once it has
// exited.
func (d *decision) resize(sandbox runtime.Sandbox) {
	differs, restarting := d.noticeResize(sandbox)
	switch {
	case restarting:
	case differs:
		if d.mayRetry(OfResize) {
			d.do(Action{Kind: ResizePod})
		}
	case d.Memory.Resizing:
		d.Memory.Resizing = false
		d.event("", v1.EventTypeNormal, "ResizeCompleted", ResizeMessage("completed", d.Pod, d.Memory.ResizeGeneration, ""))
	}
}

// noticeResize records that a resize has begun, if sizes differ from the allocated ones. It returns whether they do, and
// whether a container must restart for it.
func (d *decision) noticeResize(sandbox runtime.Sandbox) (differs, restarting bool) {
	if d.Resize.Allocated > d.Memory.ResizeGeneration {
		d.beginResize(d.Resize.Allocated)
	}
	for _, run := range d.Runtime.Containers {
		c := resizable(d.Pod, run.Name)
		switch {
		case c == nil || run.State != runtime.Running || run.SandboxID != sandbox.ID:
		case changed(d.Pod, c, run):
			restarting = true
		case d.applied(c, run) != criconfig.ContainerSize(d.Pod, c):
			differs = true
		}
	}
	// An agent that ended during a resize may not have resized the cgroup: repeat it.
	if d.appliedToPod() != criconfig.PodSize(d.Pod) || d.Memory.Cgroup == nil && d.Memory.Resizing {
		differs = true
	}
	if differs && !d.Memory.Resizing {
		d.beginResize(d.Pod.Generation)
	}
	return differs, restarting
}

func (d *decision) beginResize(generation int64) {
	d.Memory.Resizing, d.Memory.ResizeGeneration = true, generation
	delete(d.Memory.Failures, OfResize)
}

// resizeConditions returns the conditions of a pending resize and of one in progress. The observed
// generation of the latter is that of the spec that requested it, not the newest.
func (d *decision) resizeConditions(s *v1.PodStatus) []v1.PodCondition {
	if IsOver(s.Phase) {
		return nil
	}
	var conditions []v1.PodCondition
	if p := d.Resize.Pending; p != nil {
		reason := v1.PodReasonDeferred
		if p.Reason == v1.PodReasonInfeasible {
			reason = p.Reason
		}
		conditions = append(conditions, v1.PodCondition{
			Type: v1.PodResizePending, Reason: reason, Message: p.Message, ObservedGeneration: d.Pod.Generation,
		})
	}
	if d.Memory.Resizing {
		c := v1.PodCondition{Type: v1.PodResizeInProgress, ObservedGeneration: d.Memory.ResizeGeneration}
		if failure, failed := d.Memory.Failures[OfResize]; failed {
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

// ResizeMessage returns the message of an event about a resize: its outcome, and the requested
// resources as JSON.
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
