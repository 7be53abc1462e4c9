// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// A rule with the action RestartAllContainers (KEP-5532) ends the life of all containers of a pod, and begins their next one
// in the same sandbox: init containers run again, then app containers. The number of the life in which a run was created is
// stored with the run, so that the runtime alone tells how far the restart is.

// The reason and the message of a container that has ended and waits for its next life.
const (
	reasonRestartingAll  = "RestartingAllContainers"
	messageRestartingAll = "The container is removed because RestartAllContainers in place"
)

// lifeOf returns the current life of the pod's containers: 0, or the number of times that a rule restarted all of them.
func lifeOf(pod *v1.Pod, runs []runtime.Container) int {
	life := 0
	for _, run := range runs {
		c := resizable(pod, run.Name)
		if c == nil {
			continue // ephemeral containers are not restarted
		}
		life = max(life, run.Life)
		if run.State == runtime.Exited && RestartsAll(c, run.ExitCode) {
			life = max(life, run.Life+1)
		}
	}
	return life
}

// isPast reports whether a run belongs to an earlier life.
func (d *decision) isPast(run runtime.Container) bool {
	return run.Life < d.life && resizable(d.Pod, run.Name) != nil
}

// isPastRun reports whether the container's newest run belongs to an earlier life and has ended. Its next run is about to start.
func (d *decision) isPastRun(name string) bool {
	run, ok := d.Runtime.Latest(name)
	return ok && run.State == runtime.Exited && d.isPast(run)
}

// startsAgain reports whether a container is about to start in the current life, so that the end of its last run is not final.
func (d *decision) startsAgain(name string) bool {
	run, ok := d.Runtime.Latest(name)
	return ok && d.life > 0 && (d.isPast(run) || run.State == runtime.Created)
}

// endPastLives kills what still runs of an earlier life, without grace, and reports whether the next life must wait for it.
func (d *decision) endPastLives() (wait bool) {
	begun := false
	for _, run := range d.Runtime.Containers {
		if !d.isPast(run) {
			begun = begun || resizable(d.Pod, run.Name) != nil
			continue
		}
		if (run.State == runtime.Running || run.State == runtime.Unknown) && !d.isInFlight(StartContainer, run.Name) {
			d.kill(run, d.killDeadline(run, "", 0), "killing")
			wait = true
		}
	}
	// A start that began in the earlier life ends first, and is killed then.
	return wait || d.life > 0 && !begun && d.isStarting()
}

// restartsAllNow reports whether the current life has not begun: no container has been created in it.
func (d *decision) restartsAllNow() bool {
	for _, run := range d.Runtime.Containers {
		if run.Life == d.life && resizable(d.Pod, run.Name) != nil {
			return false
		}
	}
	return d.life > 0
}

// restartingCondition returns the condition of a pod that has a rule which restarts all containers.
func (d *decision) restartingCondition(s *v1.PodStatus) []v1.PodCondition {
	if !mayRestartAll(d.Pod) {
		return nil
	}
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse, ObservedGeneration: d.Pod.Generation}
	switch {
	case s.Phase == v1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = reasonPodFailed
	case !d.out.Stopping && d.restartsAllNow():
		c.Status, c.Reason, c.Message = v1.ConditionTrue, "RestartAllContainersStarted", "container exited with restart policy rule"
	}
	c.LastTransitionTime = metav1.NewTime(d.Now).Rfc3339Copy()
	if old := conditionOf(d.Old.Conditions, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return []v1.PodCondition{c}
}

// mayRestartAll reports whether a rule of some container restarts all.
func mayRestartAll(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, rule := range list[i].RestartPolicyRules {
				if rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// RestartsAll reports whether the end of a container with exitCode restarts all containers of its pod.
func RestartsAll(c *v1.Container, exitCode int32) bool {
	rule := matchingRule(c, exitCode)
	return rule != nil && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}
