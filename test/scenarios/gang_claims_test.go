// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"testing"
)

// sharingGang is a PodGroup with a claim from a template, and pods that use it.
func sharingGang(name, template string, pods int, image string) string {
	text := fmt.Sprintf(`
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: %[1]s}
spec:
  schedulingPolicy: {gang: {minCount: %[3]d}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: %[2]s}]
`, name, template, pods)
	for i := range pods {
		text += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[3]d, labels: {gang: %[1]s}}
spec:
  schedulingGroup: {podGroupName: %[1]s}
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: %[4]s, command: [sh, -c, "trap exit TERM; sleep 3600 & wait"], resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: %[2]s}]
`, name, template, i, image)
	}
	return text
}

// claimOfGang waits for the claim that was created for a PodGroup.
func (s *session) claimOfGang(group string) (name string) {
	s.Helper()
	s.eventually("the claim of "+group+" is created", func() error {
		if name = s.jsonpath("{.status.resourceClaimStatuses[?(@.name=='gpu')].resourceClaimName}", "podgroup", group); name == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	return name
}

// TestClaimsOfGangs: the pods of a gang share one claim, which belongs to the PodGroup: it is created,
// reserved, deleted and restored with it, also over a crash.
func TestClaimsOfGangs(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "3", gangsOn)
	s := newSession(t, c)
	nodes := s.nodes()
	s.apply(fmt.Sprintf(devices, nodes[0], nodes[2]))
	s.apply(sharingGang("train", "small", 3, "any"))
	s.groupShows("train", "Scheduled")
	s.gangRuns("train", 3)
	claim := s.claimOfGang("train")
	s.prints(claim+" "+claim+" "+claim, "get", "pods", "-l", "gang=train", "-o", "jsonpath={.items[*].status.resourceClaimStatuses[*].resourceClaimName}")
	s.prints("scheduling.k8s.io podgroups train "+s.uid("podgroup/train"), "get", "resourceclaim", claim, "-o",
		"jsonpath={range .status.reservedFor[*]}{.apiGroup} {.resource} {.name} {.uid}{end}")

	// Two more groups compete for the other device. The one that waits gets it when the winner is gone,
	// and not when the pods of the winner are.
	s.apply(sharingGang("left", "small", 2, "any"))
	s.gangRuns("left", 2)
	s.apply(sharingGang("right", "small", 2, "any"))
	s.groupShows("right", "Unschedulable")
	s.unschedulable("right-0", "3 cannot allocate all claims")
	s.kubectl("delete", "pods", "-l", "gang=left")
	c.kill(t)
	c.again(t)
	s.prints("left", "get", "resourceclaim", s.claimOfGang("left"), "-o", "jsonpath={.status.reservedFor[*].name}")
	left := s.claimOfGang("left")
	s.kubectl("delete", "podgroup", "left")
	s.gone("resourceclaim", left)
	s.groupShows("right", "Scheduled")
	s.gangRuns("right", 2)

	// The claim is a dependent of its PodGroup.
	s.kubectl("delete", "podgroup", "right", "--wait=false")
	s.kubectl("delete", "pods", "-l", "gang=right")
	s.gone("podgroup", "right")
	for _, args := range [][]string{{"tree", "podgroup/train"}, {"delete", "--preview", "podgroup/train"}} {
		r := s.kindred(args...)
		s.contains(r.out, "PodGroup/train", "ResourceClaim/"+claim)
	}
	s.kubectl("delete", "podgroup", "train", "--wait=false")
	s.kubectl("delete", "pods", "-l", "gang=train")
	s.gone("podgroup", "train")
	s.gone("resourceclaim", claim)
	s.contains(s.kindred("undelete", "podgroup/train").out, "PodGroup/train", "ResourceClaim/"+claim)
	s.apply(sharingGang("train", "small", 3, "any"))
	s.gangRuns("train", 3)
	s.prints("resourceclaim.resource.k8s.io/"+claim+"\n", "get", "resourceclaims", "-o", "name")
	s.prints("train", "get", "resourceclaim", claim, "-o", "jsonpath={.status.reservedFor[*].name}")
}

// TestDRAOfGangs: a driver prepares the claim of a PodGroup once for the pods of the gang, and unprepares it
// after the last of them.
func TestDRAOfGangs(t *testing.T) {
	c, driver := ownClusterWithDRADriver(t, gangsOn)
	s := newSession(t, c)
	s.published(driver, 1)
	s.apply(draManifest)
	s.apply(sharingGang("train", "own", 2, image))
	s.ready("train-0")
	s.ready("train-1")
	claim := s.claimOfGang("train")
	driver.expectCalls("prepare "+claim, 1)
	device := s.kubectl("exec", "train-0", "--", "sh", "-c", "echo $GPU_a")
	s.contains(device, "gpu-")
	s.prints(device, "exec", "train-1", "--", "sh", "-c", "echo $GPU_a")
	c.kill(t)
	c.again(t)
	s.kubectl("delete", "pod", "train-0")
	driver.expectCalls("unprepare "+claim, 0)
	s.kubectl("delete", "pod", "train-1")
	driver.expectCalls("unprepare "+claim, 1)
	s.kubectl("delete", "podgroup", "train")
	s.gone("resourceclaim", claim)
	driver.nothingLeft()
}
