// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
)

// unserved are objects that nothing in a cluster acts on without an add-on, and a volume that no node can mount.
const unserved = `
apiVersion: v1
kind: Pod
metadata: {name: unscheduled}
spec:
  schedulerName: mine
  containers: [{name: c, image: test}]
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {type: LoadBalancer, loadBalancerClass: example.com/lb, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: unrouted}
spec: {defaultBackend: {service: {name: balanced, port: {number: 80}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: queued}
spec:
  managedBy: example.com/queue
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: test}]}
---
apiVersion: v1
kind: Pod
metadata: {name: claimless}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
  containers: [{name: c, image: test, resources: {claims: [{name: gpu}]}}]
---
apiVersion: v1
kind: Pod
metadata: {name: secured}
spec:
  securityContext: {windowsOptions: {runAsUserName: user}, seLinuxOptions: {level: "s0:c1"}}
  containers: [{name: c, image: test, securityContext: {capabilities: {add: [CAP_NET_ADMIN]}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: disks}
spec:
  replicas: 0
  selector: {matchLabels: {app: disks}}
  template:
    metadata: {labels: {app: disks}}
    spec:
      containers: [{name: c, image: test}]
      volumes: [{name: v, iscsi: {targetPortal: 10.0.0.1, iqn: "iqn.2026-01.com.example:a", lun: 0}}]
`

// TestNothingIsAcceptedInSilence: the creator of what nothing acts on gets a warning, an update that changes something
// else does not, and each object has one event for each cause, also after a crash.
func TestNothingIsAcceptedInSilence(t *testing.T) {
	t.Parallel()
	s := newSession(t, ownCluster(t))
	events := map[string]int{"unscheduled": 1, "balanced": 1, "unrouted": 1, "queued": 1, "claimless": 1, "secured": 2}
	texts := []string{
		`Warning: spec.schedulerName: the scheduler of this cluster is "default-scheduler"; the pod stays Pending until a scheduler with the name "mine" binds it`,
		`Warning: spec.loadBalancerClass: this cluster serves Services without a class; this one gets no address until a controller of the class "example.com/lb" gives it one`,
		`Warning: spec.ingressClassName: there is no IngressClass; the Ingress is not served until an ingress controller is installed`,
		`Warning: spec.template.spec.volumes[0].iscsi: no node supports volumes of this type; the pod does not start`,
		`Warning: spec.managedBy: the controller of this cluster is "kubernetes.io/job-controller"; the Job has no pods until the controller "example.com/queue" creates them`,
		`Warning: spec.resourceClaims[0].resourceClaimName: the pod stays Pending until there is a ResourceClaim "gpu"`,
		`Warning: spec.securityContext.windowsOptions: no node runs Windows; the options have no effect`,
		`Warning: spec.containers[0].securityContext.capabilities.add[0]: containerd ignores "CAP_NET_ADMIN"; write NET_ADMIN, without the prefix`,
	}
	if lacks := s.jsonpath(`{.items[0].metadata.annotations.kindred\.dev/lacks}`, "nodes"); strings.Contains(lacks, "selinux") {
		texts = append(texts, "Warning: spec.securityContext.seLinuxOptions: no node has SELinux; the options have no effect")
		events["secured"]++
	}
	r := runCommand(s.command("apply", "-f", "-"), unserved)
	if r.code != 0 {
		t.Fatal(r.err)
	}
	for _, text := range texts {
		if strings.Count(r.err, text) != 1 {
			t.Errorf("kubectl apply prints\n%s\nand not once %q", r.err, text)
		}
	}
	for _, object := range []string{"pod/unscheduled", "service/balanced", "ingress/unrouted", "deployment/disks", "job/queued", "pod/claimless", "pod/secured"} {
		if r := s.try("label", object, "a=b"); r.code != 0 || strings.Contains(r.err, "Warning") {
			t.Errorf("kubectl label %s: exit status %d, %s", object, r.code, r.err)
		}
	}
	count := func(object string) int {
		return len(strings.Fields(s.jsonpath("{.items[*].metadata.uid}", "events", "--field-selector=reason=NotActedOn,involvedObject.name="+object)))
	}
	told := func() error {
		for object, want := range events {
			if n := count(object); n != want {
				return fmt.Errorf("%s has %d events, want %d", object, n, want)
			}
		}
		return nil
	}
	s.eventually("each object has its events", told)
	s.cluster.kill(t)
	s.cluster.again(t)
	// The controller works through the objects of before the crash in order: then it has been through the older ones.
	s.apply(`{apiVersion: v1, kind: Pod, metadata: {name: later}, spec: {schedulerName: mine, containers: [{name: c, image: test}]}}`)
	s.eventually("a new pod has an event", func() error {
		if n := count("later"); n != 1 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	if err := told(); err != nil {
		t.Errorf("after the crash: %v", err)
	}
}
