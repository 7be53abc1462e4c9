// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// gang returns the manifest of a gang: a PodGroup, and pods with the same labels and CPU.
func gang(name string, least, pods int, cpu string) string {
	text := fmt.Sprintf(`
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: %s}
spec: {schedulingPolicy: {gang: {minCount: %d}}}
`, name, least)
	for i := range pods {
		text += gangPod(fmt.Sprintf("%s-%d", name, i), name, cpu, "")
	}
	return text
}

func gangPod(name, group, cpu, owner string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {gang: %s}%s}
spec: {schedulingGroup: {podGroupName: %s}, terminationGracePeriodSeconds: 0, containers: [{name: c, image: any, resources: {requests: {cpu: %q}}}]}
`, name, group, owner, group, cpu)
}

// onNodes returns how many pods of a gang are on nodes.
func (s *session) onNodes(gang string) int {
	s.Helper()
	placed := 0
	for _, pod := range s.pods("gang=" + gang) {
		if pod.Spec.NodeName != "" {
			placed++
		}
	}
	return placed
}

// groupShows waits until the table of PodGroups has the status of a group.
func (s *session) groupShows(group, status string) {
	s.Helper()
	s.eventually(group+" is "+status, func() error {
		if row := strings.Fields(s.kubectl("get", "podgroup", group, "--no-headers")); len(row) != 5 || row[1] != "Gang" || row[3] != status {
			return fmt.Errorf("%q", row)
		}
		return nil
	})
}

// gangRuns waits until a number of pods of a gang run.
func (s *session) gangRuns(gang string, count int) {
	s.Helper()
	s.eventually(gang+" runs", func() error {
		running := 0
		for _, pod := range s.pods("gang=" + gang) {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != count {
			return fmt.Errorf("%d of %d pods run", running, count)
		}
		return nil
	})
}

const gangsOn = "--runtime-config=scheduling.k8s.io/v1beta1=true"

// TestGangs: gangs are scheduled as a whole or not at all, before and after the server is killed.
func TestGangs(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "1", gangsOn)
	s := newSession(t, c)
	s.apply(gang("fits", 3, 3, "4"))
	s.groupShows("fits", "Scheduled")
	s.gangRuns("fits", 3)

	// A Job's template has the group.
	s.apply(gang("job", 2, 0, "") + `---
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {labels: {gang: job}}
    spec: {schedulingGroup: {podGroupName: job}, restartPolicy: Never, containers: [{name: c, image: any}]}
`)
	s.groupShows("job", "Scheduled")
	s.gangRuns("job", 2)

	// Two gangs compete for room for one of them.
	s.apply(gang("left", 4, 4, "4") + "---" + gang("right", 4, 4, "4"))
	var winner, loser string
	s.eventually("one gang is scheduled and one is not", func() error {
		if winner, loser = "left", "right"; s.onNodes(winner) == 0 {
			winner, loser = "right", "left"
		}
		if placed, other := s.onNodes(winner), s.onNodes(loser); placed != 4 || other != 0 {
			return fmt.Errorf("%d and %d pods on nodes", placed, other)
		}
		return nil
	})
	s.groupShows(loser, "Unschedulable")
	message := s.kubectl("get", "podgroup", loser, "-o", "jsonpath={.status.conditions[0].message}")
	s.contains(message, "minCount (4) cannot be satisfied: 1 scheduled, 2 remaining", "pod group preemption: No preemption victims found for incoming preemptor")
	s.unschedulable(loser+"-0", "pod group is unschedulable, minCount (4)")
	s.kubectl("delete", "pods", "-l", "gang="+winner)
	s.groupShows(loser, "Scheduled")
	s.gangRuns(loser, 4)

	// A gang waits for its last pod, and then for nodes; a killed server changes nothing.
	s.apply(gang("big", 6, 5, "8"))
	time.Sleep(500 * time.Millisecond)
	if condition := s.kubectl("get", "podgroup", "big", "-o", "jsonpath={.status}"); condition != "{}" && condition != "" {
		t.Errorf("status of a gang that is not complete: %s", condition)
	}
	s.apply(gangPod("big-5", "big", "8", ""))
	s.groupShows("big", "Unschedulable")
	c.kill(t)
	c.mustStart(t, "--no-node", "--simulated-nodes", "3", gangsOn)
	s.groupShows("big", "Scheduled")
	s.gangRuns("big", 6)

	// A PodGroup remains until its pods are gone.
	s.kubectl("delete", "podgroup", "fits", "--wait=false")
	s.contains(s.kubectl("get", "podgroup", "fits", "-o", "jsonpath={.metadata.finalizers}"), "scheduling.k8s.io/podgroup-protection")
	s.kubectl("delete", "pods", "-l", "gang=fits")
	s.kubectl("wait", "--for=delete", "podgroup/fits", "--timeout=30s")
}

// TestKilledGangs: the server is killed while it binds gangs, of which half fit. Then none is
// incomplete.
func TestKilledGangs(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "2", gangsOn)
	s := newSession(t, c)
	const gangs, size = 16, 8
	var manifests []string
	for i := range gangs {
		manifests = append(manifests, gang(fmt.Sprint("g", i), size, size, "1"))
	}
	manifest := strings.Join(manifests, "---")
	for _, bound := range []int{1, 20} {
		applied := make(chan result, 1)
		go func() { applied <- runCommand(s.command("apply", "-f", "-"), manifest) }()
		s.eventually("some pods are bound", func() error {
			total := 0
			for _, pod := range s.pods("") {
				if pod.Spec.NodeName != "" {
					total++
				}
			}
			if total < bound {
				return fmt.Errorf("%d pods", total)
			}
			return nil
		})
		c.kill(t)
		<-applied
		c.again(t)
	}
	s.apply(manifest)
	s.eventually("half of the gangs are scheduled", func() error {
		complete := 0
		for i := range gangs {
			name := fmt.Sprint("g", i)
			switch placed := s.onNodes(name); placed {
			case size:
				complete++
			case 0:
			default:
				return fmt.Errorf("%s has %d pods on nodes", name, placed)
			}
		}
		if complete != 64/size {
			return fmt.Errorf("%d gangs", complete)
		}
		return nil
	})
}

// TestGangPreemption: an urgent gang replaces less important pods, and no more of them than needed.
func TestGangPreemption(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node", "--simulated-nodes", "2", gangsOn))
	s.apply(`
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
`)
	s.apply(gang("old", 4, 4, "16"))
	s.gangRuns("old", 4)
	urgent := strings.ReplaceAll(gang("new", 2, 2, "10"), "spec: {sched", "spec: {priorityClassName: urgent, sched")
	s.apply(urgent)
	s.groupShows("new", "Scheduled")
	s.gangRuns("new", 2)
	if left := s.onNodes("old"); left != 2 {
		t.Errorf("%d of 4 pods are left", left)
	}
	s.contains(s.kubectl("get", "events", "--field-selector", "reason=Preempted"), "Preempted by podgroup "+s.uid("podgroup/new")+" on node cluster")
}

// TestOwnershipOfGangs: a Workload, its PodGroup and their pods have a tree and a preview, and are
// restored together, so that the pods are scheduled again.
func TestOwnershipOfGangs(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node", "--simulated-nodes", "1", gangsOn))
	s.apply(`
apiVersion: scheduling.k8s.io/v1beta1
kind: Workload
metadata: {name: training}
spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: 2}}}]}
`)
	owner := fmt.Sprintf(`, ownerReferences: [{apiVersion: scheduling.k8s.io/v1beta1, kind: Workload, name: training, uid: %s}]`, s.uid("workload/training"))
	s.apply(strings.Replace(gang("workers", 2, 0, ""), "{name: workers}", "{name: workers"+owner+"}", 1) +
		gangPod("w-0", "workers", "1", owner) + gangPod("w-1", "workers", "1", owner))
	s.gangRuns("workers", 2)
	for _, args := range [][]string{{"tree", "workload/training"}, {"delete", "--preview", "workload/training"}} {
		r := s.kindred(args...)
		s.contains(r.out, "Workload/training", "PodGroup/workers", "Pod/w-0", "Pod/w-1")
	}
	s.kubectl("delete", "workload", "training")
	s.kubectl("wait", "--for=delete", "podgroup/workers", "pod/w-0", "pod/w-1", "--timeout=30s")
	r := s.kindred("undelete", "workload/training")
	s.contains(r.out, "Workload/training", "PodGroup/workers", "Pod/w-0", "Pod/w-1")
	s.groupShows("workers", "Scheduled")
	s.gangRuns("workers", 2)
}
