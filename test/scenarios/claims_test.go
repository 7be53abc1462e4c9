// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPodsOfUnusableClaims: a pod whose claim is missing, not bound, being deleted or has lost its volume stays Pending. The
// scheduler, or the node if the pod names it, says why in upstream's words.
func TestPodsOfUnusableClaims(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: unbound}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: deleted, finalizers: [example.com/keep]}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: lost, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: absent, resources: {requests: {storage: 1Gi}}}
`)
	s.kubectl("wait", "--for=jsonpath={.status.phase}=Lost", "pvc/lost", "--timeout", patience.String())
	s.kubectl("delete", "pvc", "deleted", "--wait=false")
	t.Cleanup(func() {
		s.kubectl("patch", "pvc", "deleted", "--type=json", "-p", `[{"op": "remove", "path": "/metadata/finalizers"}]`)
	})
	node := s.jsonpath("{.items[0].metadata.name}", "nodes")
	for claim, want := range map[string]struct{ scheduler, node string }{
		"missing": {`persistentvolumeclaim "missing" not found`, `failed to fetch PVC from API server: persistentvolumeclaims "missing" not found`},
		"unbound": {"pod has unbound immediate PersistentVolumeClaims", "PVC is not bound"},
		"deleted": {`persistentvolumeclaim "deleted" is being deleted`, "PVC is being deleted"},
		"lost":    {`persistentvolumeclaim "lost" bound to non-existent persistentvolume "absent"`, "PVC is not bound"},
	} {
		scheduled, named := claim, claim+"-on-node"
		s.apply(userOfClaim(scheduled, "", claim) + "---" + userOfClaim(named, "nodeName: "+node, claim))
		message := "0/1 nodes are available: " + want.scheduler + ". preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
		s.hasEvent(scheduled, "FailedScheduling", message)
		s.eventually("condition of "+scheduled, func() error {
			status := s.pod(scheduled).Status
			for _, c := range status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && c.Message == message {
					return nil
				}
			}
			return fmt.Errorf("%+v", status.Conditions)
		})
		s.hasEvent(named, "FailedMount", "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "+
			"failed to process volumes=[data]: error processing PVC "+s.namespace+"/"+claim+": "+want.node)
		for _, pod := range []string{scheduled, named} {
			if phase := s.pod(pod).Status.Phase; phase != corev1.PodPending {
				t.Errorf("pod %s is %s", pod, phase)
			}
		}
	}
}

func userOfClaim(name, spec, claim string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  ` + spec + `
  volumes: [{name: data, persistentVolumeClaim: {claimName: ` + claim + `}}]
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"], volumeMounts: [{name: data, mountPath: /data}]}]
`
}
