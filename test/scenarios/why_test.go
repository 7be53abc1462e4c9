// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// why checks the explanation of an object, one sentence on a line; "*" and "..." are as in shows.
func (s *session) why(object string, want ...string) {
	s.Helper()
	s.eventually("it is known why of "+object, func() error {
		r := s.kindred("why", object)
		if got := unwrapped(r.out); r.code != 0 || !sameLines(strings.Join(want, "\n"), got) {
			return fmt.Errorf("exit %d, %s\nprinted:\n%s\nwant:\n%s", r.code, r.err, got, strings.Join(want, "\n"))
		}
		return nil
	})
}

// unwrapped joins the lines of a sentence.
func unwrapped(text string) string {
	joined := strings.ReplaceAll(strings.TrimSpace(text), "\n", " ")
	return strings.ReplaceAll(joined, ". ", ".\n")
}

// TestWhy explains a Deployment and its dependents while they exist, after their deletion, and
// after the process was killed immediately after that.
func TestWhy(t *testing.T) {
	s := newSession(t, ownCluster(t, "--simulated-nodes", "2", "--no-node"))
	s.kubectl("create", "deployment", "web", "--image", image, "--replicas", "2")
	s.kubectl("rollout", "status", "deployment/web")
	s.kubectl("create", "configmap", "free")
	pods := strings.Fields(s.kubectl("get", "pods", "-o", "name"))
	sets := strings.Fields(s.kubectl("get", "replicasets", "-o", "name"))
	if len(pods) != 2 || len(sets) != 1 {
		t.Fatalf("pods %v of %v", pods, sets)
	}
	pod, set := strings.TrimPrefix(pods[0], "pod/"), strings.TrimPrefix(sets[0], "replicaset.apps/")
	s.why("configmap/free", "ConfigMap "+s.namespace+"/free exists and has no owner: it stays until it is deleted.")
	s.why(pods[0], "Pod "+s.namespace+"/"+pod+" exists: its controller ReplicaSet "+set+" exists; it is garbage collected when none of its owners exists.")

	s.kubectl("delete", "configmap", "free")
	s.why("configmap/free", "ConfigMap "+s.namespace+"/free was deleted * ago by kubernetes-admin (* with policy Background.")

	s.kubectl("delete", "deployment", "web", "--wait=false")
	s.cluster.kill(t)
	s.cluster.again(t)
	root := "Deployment " + s.namespace + "/web was deleted * ago by kubernetes-admin (* with policy Background."
	s.why("deployment/web", root)
	s.eventually("the pods are gone", func() error {
		if left := s.kubectl("get", "pods", "-o", "name"); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
	// The collector may have been killed before it recorded its deletions; then the owners are read
	// from the history.
	time.Sleep(1500 * time.Millisecond)
	for _, object := range pods {
		r := s.kindred("why", object)
		got := strings.Split(unwrapped(r.out), "\n")
		if r.code != 0 || len(got) != 3 {
			t.Fatalf("why %s: exit %d, %s%s", object, r.code, r.out, r.err)
		}
		for i, because := range []string{"because its owner ReplicaSet " + set + " was gone.", "because its owner Deployment web was gone."} {
			if !strings.HasSuffix(got[i], because) {
				t.Errorf("why %s: %q, want ... %s", object, got[i], because)
			}
		}
		if !sameLines(root, got[2]) {
			t.Errorf("why %s: %q, want %q", object, got[2], root)
		}
	}
}

// TestWhyOfANamesake: after a crash the last object with a name is explained, even if only an
// earlier one has a record.
func TestWhyOfANamesake(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node"))
	s.kubectl("create", "configmap", "root")
	s.kubectl("create", "configmap", "child")
	s.kubectl("delete", "configmap", "child")
	s.owned("configmap/root", "{apiVersion: v1, kind: ConfigMap, metadata: {name: child, ownerReferences: OWNERS}}")
	s.kubectl("delete", "configmap", "root")
	s.gone("configmap", "child")
	s.cluster.kill(t)
	s.cluster.again(t)
	r := s.kindred("why", "configmap/child")
	got := strings.Split(unwrapped(r.out), "\n")
	if r.code != 0 || len(got) != 3 || !strings.HasSuffix(got[0], ", because its owner ConfigMap root was gone.") {
		t.Fatalf("exit %d, %s%s", r.code, r.out, r.err)
	}
	for i, want := range []string{
		"ConfigMap " + s.namespace + "/root was deleted * ago by kubernetes-admin (* with policy Background.",
		"Before, ConfigMap " + s.namespace + "/child was deleted * ago by kubernetes-admin (* with policy Background (--uid *",
	} {
		if !sameLines(want, got[i+1]) {
			t.Errorf("%q, want %q", got[i+1], want)
		}
	}
}

// TestWhyWithoutTheDefinition: custom resources are explained after the deletion of their CRD, to
// callers who may get them.
func TestWhyWithoutTheDefinition(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node"))
	s.apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tools.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: tools, singular: tool, kind: Tool, shortNames: [tl]}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`)
	s.eventually("it is served", func() error {
		if r := runCommand(s.command("apply", "-f", "-"), "{apiVersion: example.com/v1, kind: Tool, metadata: {name: t1}}"); r.code != 0 {
			return fmt.Errorf("%s", r.err)
		}
		return nil
	})
	s.kubectl("delete", "crd", "tools.example.com", "--timeout", patience.String())
	for _, object := range []string{"tool/t1", "tools.example.com/t1", "tl/t1"} {
		s.why(object,
			"Tool "+s.namespace+"/t1 was deleted * ago by the API server with policy Background, because its definition was deleted.",
			"CustomResourceDefinition tools.example.com was deleted * ago by kubernetes-admin (* with policy Background.")
	}
	for object, want := range map[string]string{
		"tool/t2":   `tools.example.com "t2" not found, and no deleted object of this name is known`,
		"hammer/t1": `the cluster has no resource type "hammer", and no deleted definition of that name is known`,
	} {
		if r := s.kindred("why", object); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit %d, %s", object, r.code, r.err)
		}
	}
}

// TestWhyOnANode: a pod that is being deleted waits for its node. Once it is deleted, the
// explanation names the client that requested that, not only the node.
func TestWhyOnANode(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 60
  containers: [{name: c, image: "` + image + `", command: [sh, -c, "trap 'while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 0' TERM; while :; do sleep 0.1; done"]}]
`)
	s.ready("stubborn")
	node := s.pod("stubborn").Spec.NodeName
	pod := "Pod " + s.namespace + "/stubborn"
	s.kubectl("delete", "pod", "stubborn", "--wait=false")
	s.why("pod/stubborn",
		pod+" is being deleted.",
		pod+": deletion requested * ago by kubernetes-admin (* with policy Background.",
		"Node "+node+" has to stop its containers first; they are killed by * at the latest.")
	s.kubectl("exec", "stubborn", "--", "touch", "/tmp/end")
	s.gone("pod", "stubborn")
	s.why("pod/stubborn", pod+" was deleted * ago by kubernetes-admin (* with policy Background.")
}
