// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/durable"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// Eviction is why and how the node ends a pod that may run: to get a resource back, because the pod uses more than its
// limit, or because the machine shuts down.
type Eviction struct {
	Refusal
	// GraceSeconds replaces the grace period of the pod's spec.
	GraceSeconds int64
	// Disrupts is set if the pod is not at fault: its status gets the condition DisruptionTarget (KEP-3329).
	Disrupts bool
	// ConditionMessage is the condition's message, if it is not that of the status.
	ConditionMessage string `json:",omitempty"`
	// BootID is the boot of the machine (proc_sys_kernel(5)) in which the pod was evicted.
	BootID string `json:",omitempty"`
}

// Save stores the eviction in the pod's directory, for the next agent: if this one ends before the pod's final
// status is written, the pod must not run again.
func (e Eviction) Save(l rootdir.Layout, uid types.UID) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode the pod's eviction: %w", err)
	}
	path := l.EvictionFile(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("create the pod's directory: %w", err)
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("save the pod's eviction: %w", err)
	}
	return nil
}

// LoadEviction returns the eviction that Save stored, or nil.
func LoadEviction(l rootdir.Layout, uid types.UID) *Eviction {
	data, err := os.ReadFile(l.EvictionFile(uid))
	var e Eviction
	if err != nil || json.Unmarshal(data, &e) != nil {
		return nil
	}
	return &e
}

// Evict stops the pod, which then fails. The first eviction of a pod decides why; a later one can only shorten its grace
// period.
func (w *Worker) Evict(e Eviction) {
	w.mu.Lock()
	w.isEvicted = true
	w.results = append(w.results, result{apply: func(m *Memory) {
		if first := m.Evicted; first != nil {
			e.Refusal, e.Disrupts, e.ConditionMessage = first.Refusal, first.Disrupts, first.ConditionMessage
			e.GraceSeconds = min(first.GraceSeconds, e.GraceSeconds)
		}
		m.Evicted = &e
	}})
	w.mu.Unlock()
	w.Wake()
}

// IsEvicted reports whether the pod has been evicted. released is set once nothing of it runs and its volumes and cgroup
// are released.
func (w *Worker) IsEvicted() (evicted, released bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isEvicted, w.isFinished
}

// Finished reports whether nothing of the pod runs, its volumes are released, and the API has its final phase.
func (w *Worker) Finished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isFinished && (w.deleted || IsOver(w.pod.Status.Phase))
}

// ended returns why the node ends the pod: it exceeded its deadline, or is evicted. It is nil for other pods.
func (d *decision) ended() *Refusal {
	switch {
	case d.Memory.Expired != nil:
		return d.Memory.Expired
	case d.Memory.Evicted != nil:
		return &d.Memory.Evicted.Refusal
	}
	return nil
}

// evictionGrace shortens the grace period of a pod that is evicted.
func (d *decision) evictionGrace(grace time.Duration) time.Duration {
	e := d.Memory.Evicted
	if e == nil {
		return grace
	}
	override := time.Duration(e.GraceSeconds) * time.Second
	if d.deleting() {
		return min(grace, override) // both want the pod to end
	}
	return override
}

// succeededEvicted reports whether the containers of a pod ended with the exit code 0 after the pod was evicted. It has then
// succeeded, as in kubelets.
func (d *decision) succeededEvicted(s *v1.PodStatus) bool {
	return d.Memory.Evicted != nil && d.Memory.Expired == nil && s.Phase == v1.PodSucceeded
}

// disruption returns the condition DisruptionTarget of a pod that is over because it was evicted, or nil.
func (d *decision) disruption(s *v1.PodStatus) *v1.PodCondition {
	e := d.Memory.Evicted
	if e == nil || !e.Disrupts {
		return nil
	}
	failed := s.Phase == v1.PodFailed && s.Reason == e.Reason
	// A pod that is over in the API had succeeded before, unless it has the condition.
	succeeded := d.succeededEvicted(s) && (!IsOver(d.Pod.Status.Phase) || conditionOf(d.Old.Conditions, v1.DisruptionTarget) != nil)
	if !failed && !succeeded {
		return nil
	}
	c := v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: cmp.Or(e.ConditionMessage, e.Message),
		ObservedGeneration: d.Pod.Generation, LastTransitionTime: metav1.NewTime(d.Now).Rfc3339Copy(),
	}
	if old := conditionOf(d.Old.Conditions, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return &c
}
