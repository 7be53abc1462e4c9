// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// undelete runs "kindred undelete", which first prints the deletion, and then checks the table; "*"
// and "..." are as in shows.
func (s *session) undelete(want string, args ...string) {
	s.Helper()
	r := s.kindred(append([]string{"undelete"}, args...)...)
	first, table, _ := strings.Cut(r.out, "\n\n")
	by := " ago by kubernetes-admin ("
	if r.code != 0 || !strings.Contains(unwrapped(first), by) || !sameLines(strings.TrimSpace(want), strings.TrimSpace(table)) {
		s.Fatalf("undelete %q: exit %d, %s\nprinted:\n%s\nwant ...%s...\n%s", args, r.code, r.err, r.out, by, want)
	}
}

// podPhases returns a line for each pod with its name and phase, sorted.
func (s *session) podPhases() (pods []string) {
	s.Helper()
	for _, pod := range s.pods("") {
		pods = append(pods, fmt.Sprintf("%s %s", pod.Name, pod.Status.Phase))
	}
	slices.Sort(pods)
	return pods
}

// TestUndelete deletes and restores a namespace full of workloads: the same pods run, terminated
// ones stay terminated, and nothing is duplicated.
func TestUndelete(t *testing.T) {
	s := newSession(t, ownCluster(t, "--simulated-nodes", "2", "--no-node"))
	s.kubectl("create", "namespace", "shop")
	s = inNamespace(t, s.cluster, "shop")
	s.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: any}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: any}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: done}
spec:
  completions: 2
  template:
    metadata: {annotations: {kindred.dev/simulated-exit-after: 10ms, kindred.dev/simulated-exit-code: "0"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: any}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: runs}
spec:
  completions: 2
  parallelism: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: any}]}
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec: {containers: [{name: c, image: any}]}
`)
	s.kubectl("rollout", "status", "deployment/web")
	s.kubectl("rollout", "status", "daemonset/agent")
	s.kubectl("set", "image", "deployment/web", "c=other")
	s.kubectl("rollout", "status", "deployment/web")
	s.jobEnds("done", "complete")
	var before []string
	s.eventually("all pods run", func() error {
		if before = s.podPhases(); len(before) != 10 || strings.Count(strings.Join(before, " "), "Running") != 8 {
			return fmt.Errorf("%v", before)
		}
		return nil
	})
	address := s.jsonpath("{.spec.clusterIP}", "service", "web")
	s.kubectl("delete", "namespace", "shop", "--timeout", patience.String())

	r := s.kindred("undelete", "namespace/shop")
	if r.code != 0 {
		t.Fatalf("exit %d, %s\n%s", r.code, r.err, r.out)
	}
	s.contains(r.out, "Namespace shop was deleted ", "│  ├─ Pod/done-", "left      its controller recreates it", "restored: ")
	var after []string
	s.eventually("the pods run again", func() error {
		if after = s.podPhases(); !slices.Equal(before, after) {
			return fmt.Errorf("%s", cmp.Diff(before, after))
		}
		return nil
	})
	s.kubectl("rollout", "status", "deployment/web")
	s.kubectl("rollout", "status", "daemonset/agent")
	s.prints(address, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	s.prints("2 Complete", "get", "job", "done", "-o", `jsonpath={.status.succeeded} {.status.conditions[?(@.type=="Complete")].type}`)
	s.prints("2", "get", "job", "runs", "-o", "jsonpath={.status.active}")
	s.prints("2", "get", "deployment", "web", "-o", `jsonpath={.metadata.annotations.deployment\.kubernetes\.io/revision}`)
	for _, pod := range s.pods("") {
		if owner := metav1.GetControllerOf(&pod); pod.Name != "alone" && s.jsonpath("{.metadata.uid}", owner.Kind, owner.Name) != string(owner.UID) {
			t.Errorf("%s is owned by %+v", pod.Name, owner)
		}
		if _, held := pod.Annotations["ownership.kindred.dev/hold"]; held || len(pod.Spec.SchedulingGates) > 0 {
			t.Errorf("%s is on hold: %v, %v", pod.Name, pod.Annotations, pod.Spec.SchedulingGates)
		}
	}
	// The namespace's events were deleted with it. No new event shows that a controller recreated a
	// pod.
	time.Sleep(time.Second)
	if made := s.kubectl("get", "events", "-o", `jsonpath={range .items[?(@.reason=="SuccessfulCreate")]}{.message}{"\n"}{end}`); made != "" {
		t.Errorf("recreated:\n%s", made)
	}
	if pods := s.podPhases(); !slices.Equal(before, pods) {
		t.Errorf("a second later:\n%s", cmp.Diff(before, pods))
	}

	// A pod that terminates now is counted once, and a rollout continues.
	s.kubectl("rollout", "undo", "deployment/web")
	s.kubectl("rollout", "status", "deployment/web")
	s.prints("any", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// TestUndeleteOnNode: the containers of restored pods run again. Pods that were still stopping are not
// restored; their controller recreates them.
func TestUndeleteOnNode(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 3
      containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.kubectl("rollout", "status", "deployment/web", "--timeout", patience.String())
	before := s.pods("app=web")[0]
	s.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout", patience.String())
	s.undelete(`
OBJECT  OUTCOME  NOTES
Deployment/web  restored
└─ ReplicaSet/web-*  restored
   └─ Pod/web-*  restored

restored: 3`, "deployment/web")
	s.kubectl("rollout", "status", "deployment/web", "--timeout", patience.String())
	s.ready(before.Name)
	after := s.pods("app=web")
	if len(after) != 1 || after[0].Name != before.Name || after[0].UID == before.UID || after[0].Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("want one new pod with the name and a new container, got %+v", after)
	}

	s.kubectl("delete", "deployment", "web", "--wait=false")
	s.eventually("its pod is being deleted", func() error {
		if pods := s.pods("app=web"); len(pods) == 1 && pods[0].DeletionTimestamp == nil {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	r := s.kindred("undelete", "deployment/web", "-o", "yaml")
	if r.code != 0 || !strings.Contains(r.out, "phase: Complete") {
		t.Fatalf("exit %d, %s\n%s", r.code, r.err, r.out)
	}
	s.kubectl("rollout", "status", "deployment/web", "--timeout", patience.String())
	s.eventually("one pod runs", func() error {
		pods := s.pods("app=web")
		if len(pods) != 1 || pods[0].DeletionTimestamp != nil || pods[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
}

// TestUndeleteDefinition restores a CRD and its objects, with references between them.
func TestUndeleteDefinition(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node"))
	s.apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	s.eventually("it is served", func() error {
		if r := s.try("get", "things"); r.code != 0 {
			return fmt.Errorf("%s", r.err)
		}
		return nil
	})
	s.apply("{apiVersion: example.com/v1, kind: Thing, metadata: {name: one}, spec: {a: b}}")
	s.kubectl("patch", "thing", "one", "--subresource=status", "--type=merge", "-p", `{"status":{"observedGeneration":1,"ready":true}}`)
	uid := s.jsonpath("{.metadata.uid}", "thing", "one")
	s.apply(`{apiVersion: example.com/v1, kind: Thing, metadata: {name: two, ownerReferences: [{apiVersion: example.com/v1, kind: Thing, name: one, uid: ` + uid + `}]}, spec: {ref: ` + uid + `}}`)
	s.kubectl("delete", "crd", "things.example.com", "--timeout", patience.String())
	s.undelete(`
OBJECT  OUTCOME  NOTES
CustomResourceDefinition/things.example.com  restored
└─ Thing/one in `+s.namespace+`  restored
   └─ Thing/two in `+s.namespace+`  restored

restored: 3`, "crd/things.example.com")
	now := s.jsonpath("{.metadata.uid}", "thing", "one")
	s.prints(now+" "+now, "get", "thing", "two", "-o", "jsonpath={.metadata.ownerReferences[0].uid} {.spec.ref}")
	s.prints("true", "get", "thing", "one", "-o", "jsonpath={.status.ready}")
	if now == uid {
		t.Error("it has its old UID")
	}
}

// TestUndeleteSurvivesKill: the process is killed several times during an undeletion. The same
// command resumes it, and at the end every object exists once.
func TestUndeleteSurvivesKill(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node"))
	const dependents = 1500 // enough that the first kill comes before the end, also on a fast machine
	var manifest strings.Builder
	s.kubectl("create", "configmap", "root")
	uid := s.jsonpath("{.metadata.uid}", "configmap", "root")
	for i := range dependents {
		fmt.Fprintf(&manifest, "{apiVersion: v1, kind: ConfigMap, metadata: {name: child-%04d, labels: {child: \"\"}, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: root, uid: %s}]}}\n---\n", i, uid)
	}
	s.input(manifest.String(), "create", "-f", "-")
	s.kubectl("delete", "configmap", "root")
	count := func() int { return strings.Count(s.kubectl("get", "configmaps", "-l", "child", "-o", "name"), "\n") }
	s.eventually("all are gone", func() error {
		if n := count(); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	for kill := range 3 {
		before := count()
		p, err := startProcess(s.cluster.command("undelete", "configmap/root", "-n", s.namespace, "--data-dir", s.cluster.dir))
		if err != nil {
			t.Fatal(err)
		}
		s.eventually("some are back", func() error {
			if n := count(); n <= before && n < dependents {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		s.cluster.kill(t)
		p.end()
		s.cluster.again(t)
		if n := count(); kill == 0 && n == dependents {
			t.Fatalf("all %d were back before the kill", n)
		}
	}
	want := fmt.Sprintf("\nrestored: %d\n", dependents+1)
	if !strings.Contains(s.kubectl("get", "configmap", "root", "-o", "yaml"), `ownership.kindred.dev/hold:`) {
		want = "it was already restored" // the last kill came after the end
	}
	r := s.kindred("undelete", "configmap/root")
	if r.code != 0 {
		t.Fatalf("exit %d, %s\n%s", r.code, r.err, r.out)
	}
	s.contains(r.out, want)
	now := s.jsonpath("{.metadata.uid}", "configmap", "root")
	s.prints(strings.Repeat(now+" \n", dependents), "get", "configmaps", "-l", "child", "-o",
		`jsonpath={range .items[*]}{.metadata.ownerReferences[*].uid} {.metadata.annotations}{"\n"}{end}`)
}

// TestUndeleteIsRefused: a refused undeletion prints the reason.
func TestUndeleteIsRefused(t *testing.T) {
	s := withoutNode(t)
	refused := func(want string, args ...string) {
		t.Helper()
		r := s.kindred(append([]string{"undelete"}, args...)...)
		if r.code == 0 || !strings.Contains(r.err+r.out, want) {
			t.Errorf("undelete %q: exit %d, want %q in\n%s%s", args, r.code, want, r.out, r.err)
		}
	}
	s.kubectl("create", "configmap", "there")
	refused(`"there": it exists, with the UID`, "configmap/there")
	refused(`configmaps "never" not found, and no deleted object of this name is known`, "configmap/never")
	refused("is no longer retained, or Kindred did not run then", "configmap/there2", "--at", "9999h")
	refused("name the objects to undelete")
	refused("neither a duration", "configmap/there", "--at", "yesterday")
	s.kubectl("patch", "configmap", "there", "-p", `{"metadata":{"finalizers":["example.com/wait"]}}`)
	s.kubectl("delete", "configmap", "there", "--wait=false")
	refused("it is still being deleted; wait until it is gone", "configmap/there")
	s.kubectl("patch", "configmap", "there", "-p", `{"metadata":{"finalizers":null}}`)
	s.contains(s.kindred("undelete", "--list").out, "ConfigMap/there  background  kubernetes-admin", "1 deletion since ", " can be undone")
	s.undelete(`
OBJECT           OUTCOME   NOTES
ConfigMap/there  restored

restored: 1`, "configmap/there")
}

// TestUndeleteVolumesTokensAndSurplusPods: claims are bound to their volumes again, tokens are issued for
// the restored accounts, and a pod that its controller would delete at once is not restored.
func TestUndeleteVolumesTokensAndSurplusPods(t *testing.T) {
	s := newSession(t, ownCluster(t, "--simulated-nodes", "1", "--no-node"))
	s.kubectl("create", "namespace", "data")
	s = inNamespace(t, s.cluster, "data")
	s.apply(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: v1
kind: Secret
metadata: {name: a-token, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: kept}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /none}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: kept, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: lost}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: lost, resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: any}]}
`)
	uid := s.jsonpath("{.metadata.uid}", "persistentvolumeclaim", "kept")
	s.kubectl("patch", "persistentvolume", "kept", "-p", `{"spec":{"claimRef":{"kind":"PersistentVolumeClaim","apiVersion":"v1","namespace":"data","name":"kept","uid":"`+uid+`"}}}`)
	var pods []string
	s.eventually("the pods run", func() error {
		if pods = s.podPhases(); len(pods) != 2 || strings.Count(strings.Join(pods, " "), "Running") != 2 {
			return fmt.Errorf("%v", pods)
		}
		return nil
	})
	s.eventually("the token is filled in", func() error {
		if s.jsonpath("{.data.token}", "secret", "a-token") == "" {
			return fmt.Errorf("it is empty")
		}
		return nil
	})
	s.kubectl("delete", "namespace", "data", "--timeout", patience.String())
	r := s.kindred("undelete", "-o", "json", "namespace/data")
	if r.code != 0 {
		t.Fatalf("exit %d, %s\n%s", r.code, r.err, r.out)
	}
	s.contains(r.out, "its volume kept is bound to it again", "its volume lost no longer exists")
	again := s.jsonpath("{.metadata.uid} {.spec.volumeName}", "persistentvolumeclaim", "kept")
	if bound := s.jsonpath("{.spec.claimRef.uid}", "persistentvolume", "kept"); again != bound+" kept" || bound == uid {
		t.Errorf("the claim is %q, and its volume is bound to %q, after %q", again, bound, uid)
	}
	if lost := s.jsonpath("{.spec.volumeName}", "persistentvolumeclaim", "lost"); lost != "" {
		t.Errorf("the other claim names volume %q", lost)
	}
	s.eventually("the token of the account is filled in", func() error {
		account, token := s.jsonpath("{.metadata.uid}", "serviceaccount", "robot"), s.jsonpath("{.data.token}", "secret", "a-token")
		if named := s.jsonpath(`{.metadata.annotations.kubernetes\.io/service-account\.uid}`, "secret", "a-token"); named != account || token == "" {
			return fmt.Errorf("it names account %q, not %q, and has %d bytes", named, account, len(token))
		}
		return nil
	})

	pod, _, _ := strings.Cut(s.podPhases()[0], " ")
	s.kubectl("delete", "pod", pod, "--timeout", patience.String())
	s.eventually("another pod is in its place", func() error {
		if pods = s.podPhases(); len(pods) != 2 || strings.Count(strings.Join(pods, " "), "Running") != 2 {
			return fmt.Errorf("%v", pods)
		}
		return nil
	})
	for _, args := range [][]string{{"undelete", "-o", "json", "pod/" + pod}, {"undelete", "-o", "json", "--dry-run", "pod/" + pod}} {
		if r = s.kindred(args...); r.code == 0 {
			t.Errorf("%q: exit %d\n%s", args, r.code, r.out)
		}
		s.contains(r.out, "its controller ReplicaSet web has all its pods (2 of 2) and would delete another one", `"outcome": "Left"`)
	}
	if now := s.podPhases(); !slices.Equal(now, pods) {
		t.Errorf("%v became %v", pods, now)
	}
}
