// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import v1 "k8s.io/api/core/v1"

// phaseOf computes the phase from container statuses.
//
//   - Failed as soon as an init container has failed and will not be restarted;
//   - Pending until every container has run once;
//   - Running while a container runs or will be restarted;
//   - Succeeded or Failed when all have exited and none will be restarted. Sidecars count only
//     while they run.
//
// over is set if nothing will be restarted, whatever the policy. restarting reports whether a container will be, whatever its
// policy, with all others.
func phaseOf(pod *v1.Pod, s *v1.PodStatus, over, initialized bool, restarting func(name string) bool) v1.PodPhase {
	pendingInit, pendingSidecars, failedInit := 0, 0, 0
	running, waiting, unknown := 0, 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		state, last, started := stateNamed(s.InitContainerStatuses, c.Name)
		if IsSidecar(c) {
			switch {
			case state.Running != nil:
				running++
				if !started {
					pendingSidecars++
				}
			case state.Waiting != nil && last == nil:
				pendingSidecars++
				waiting++
			}
			continue
		}
		switch end := ended(state, last); {
		case end == nil:
			pendingInit++
		case end.ExitCode != 0 && !restarts(pod, c, end.ExitCode) && !restarting(c.Name):
			failedInit++
		}
	}
	stopped, final, succeededApps := 0, 0, 0
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		state, last, _ := stateNamed(s.ContainerStatuses, c.Name)
		end := ended(state, last)
		switch {
		case state.Running != nil:
			running++
		case end != nil:
			stopped++
			if !restarts(pod, c, end.ExitCode) && !restarting(c.Name) {
				final++
			}
			if state.Terminated != nil && end.ExitCode == 0 {
				succeededApps++
			}
		case state.Waiting != nil:
			waiting++
		default:
			unknown++
		}
	}
	switch {
	case failedInit > 0:
		return v1.PodFailed
	case pendingInit > 0, pendingSidecars > 0 && !initialized, waiting > 0, unknown > 0:
		return v1.PodPending
	case running > 0:
		return v1.PodRunning
	case stopped == 0:
		return v1.PodPending
	case !over && stopped != final:
		return v1.PodRunning
	case stopped == succeededApps:
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

func stateNamed(list []v1.ContainerStatus, name string) (state v1.ContainerState, last *v1.ContainerStateTerminated, started bool) {
	for i := range list {
		if list[i].Name == name {
			return list[i].State, list[i].LastTerminationState.Terminated, isTrue(list[i].Started)
		}
	}
	return v1.ContainerState{}, nil, false
}

// ended returns the end of the container's last run, or nil while the container runs.
func ended(state v1.ContainerState, last *v1.ContainerStateTerminated) *v1.ContainerStateTerminated {
	switch {
	case state.Terminated != nil:
		return state.Terminated
	case state.Waiting != nil:
		return last
	}
	return nil
}
