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
// else does not, and each object has one event, also after a crash.
func TestNothingIsAcceptedInSilence(t *testing.T) {
	t.Parallel()
	s := newSession(t, ownCluster(t))
	objects := []string{"unscheduled", "balanced", "unrouted"}
	texts := []string{
		`Warning: spec.schedulerName: the scheduler of this cluster is "default-scheduler"; the pod stays Pending until a scheduler with the name "mine" binds it`,
		`Warning: spec.loadBalancerClass: this cluster serves Services without a class; this one gets no address until a controller of the class "example.com/lb" gives it one`,
		`Warning: spec.ingressClassName: there is no IngressClass; the Ingress is not served until an ingress controller is installed`,
		`Warning: spec.template.spec.volumes[0].iscsi: no node supports volumes of this type; the pod does not start`,
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
	for _, object := range []string{"pod/unscheduled", "service/balanced", "ingress/unrouted", "deployment/disks"} {
		if r := s.try("label", object, "a=b"); r.code != 0 || strings.Contains(r.err, "Warning") {
			t.Errorf("kubectl label %s: exit status %d, %s", object, r.code, r.err)
		}
	}
	count := func(object string) int {
		return len(strings.Fields(s.jsonpath("{.items[*].metadata.uid}", "events", "--field-selector=reason=NotActedOn,involvedObject.name="+object)))
	}
	told := func() error {
		for _, object := range objects {
			if n := count(object); n != 1 {
				return fmt.Errorf("%s has %d events", object, n)
			}
		}
		return nil
	}
	s.eventually("each object has an event", told)
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
