// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
)

// Tests of the ownership verbs with real containers.

// onMachine returns everything that this machine has of pods: their containers in the node's
// runtime, running or not, and their processes, mounts and cgroups.
func (s *session) onMachine(pods []corev1.Pod) (found []string) {
	s.Helper()
	service, err := criclient.NewRemoteRuntimeServiceBuilder().
		WithEndpoint(s.cluster.containerRuntime(s.T)).
		WithConnectionTimeout(patience).
		Build(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = service.Close(s.Context()) }()
	for _, pod := range pods {
		uid := string(pod.UID)
		ofPod := map[string]string{"io.kubernetes.pod.uid": uid}
		sandboxes, err := service.ListPodSandbox(s.Context(), &runtimeapi.PodSandboxFilter{LabelSelector: ofPod})
		if err != nil {
			s.Fatal(err)
		}
		for _, sandbox := range sandboxes {
			found = append(found, "sandbox "+sandbox.Id)
		}
		containers, err := service.ListContainers(s.Context(), &runtimeapi.ContainerFilter{LabelSelector: ofPod})
		if err != nil {
			s.Fatal(err)
		}
		for _, container := range containers {
			found = append(found, "container "+container.Id)
		}
		left := footprintOf(s.T, []string{uid})
		found = slices.Concat(found, left.processes, left.mounts, left.links, left.cgroups)
	}
	return found
}

// leaveTheMachine checks that a deletion removes pods from the machine.
func (s *session) leaveTheMachine(pods []corev1.Pod, deletion func()) {
	s.Helper()
	for _, part := range []string{"sandbox ", "container ", "/sys/fs/cgroup/", "kubernetes.io~"} {
		if found := s.onMachine(pods); !strings.Contains(strings.Join(found, "\n"), part) {
			s.Fatalf("no %s of the pods can be found, so nothing can be said of their removal: %q", part, found)
		}
	}
	deletion()
	s.eventually("nothing is left of the pods", func() error {
		if left := s.onMachine(pods); len(left) > 0 {
			return fmt.Errorf("%q", left)
		}
		return nil
	})
}

// agent returns a pod as an operator would create it, with a readiness gate.
func agent(name, owners string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}, ownerReferences: %[2]s}
spec:
  containers:
  - name: c
    image: "`+image+`"
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
    readinessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [test, -f, /ready]}}
`, name, owners)
}

func (s *session) referenceTo(configMap string) string {
	s.Helper()
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, name: %s, uid: %s}", configMap, s.uid("configmap/"+configMap))
}

// TestTreeAndPreviewOfContainers: the tree shows the result of a probe, and a deletion removes the
// containers in its preview and no others.
func TestTreeAndPreviewOfContainers(t *testing.T) {
	s := withNode(t)
	s.kubectl("create", "configmap", "one")
	s.kubectl("create", "configmap", "two")
	s.apply(agent("goes", "["+s.referenceTo("one")+"]"))
	s.apply(agent("stays", "["+s.referenceTo("one")+", "+s.referenceTo("two")+"]"))
	readiness := func(of, want string) {
		t.Helper()
		s.eventually("the tree has the readiness of "+of, func() error {
			r := s.kindred("tree", "configmap/one")
			for line := range strings.Lines(r.out) {
				if words := strings.Fields(line); len(words) > 3 && words[1] == "Pod/"+of && words[3] == want {
					return nil
				}
			}
			return fmt.Errorf("exit %d, no %s of %s: %s%s", r.code, want, of, r.out, r.err)
		})
	}
	for _, pod := range []string{"goes", "stays"} {
		s.phase(pod, corev1.PodRunning)
		readiness(pod, "InProgress")
		s.kubectl("exec", pod, "--", "touch", "/ready")
		readiness(pod, "Ready")
	}
	s.kubectl("exec", "goes", "--", "rm", "/ready")
	readiness("goes", "InProgress")

	s.shows(`
OBJECT         OUTCOME  NOTES
ConfigMap/one  deleted
├─ Pod/goes    deleted
└─ Pod/stays   kept     kept by ConfigMap/two

would be deleted: 2, kept: 1
`, "delete", "--preview", "configmap/one")
	survivor := s.lives("app=stays")
	s.leaveTheMachine(s.pods("app=goes"), func() {
		if r := s.kindred("delete", "configmap/one", "--yes"); r.code != 0 {
			t.Fatalf("delete: exit %d: %s%s", r.code, r.out, r.err)
		}
		s.gone("pod", "goes")
	})
	s.stayed(survivor, "app=stays")
}

// TestLintAndRepairOfContainers: references of running pods are lost, found and repaired without
// affecting the containers. Controllers adopt their own objects again at once.
func TestLintAndRepairOfContainers(t *testing.T) {
	s := withNode(t)
	s.createWeb(3)
	s.kubectl("create", "configmap", "operator")
	s.owned("configmap/operator", agent("agent", "OWNERS"))
	s.phase("agent", corev1.PodRunning)
	s.finds(nil, 0)
	before := s.lives("")

	set := s.jsonpath("{.items[0].metadata.name}", "replicasets")
	pods := s.pods("app=web")
	orphan, outdated := pods[0].Name, pods[1].Name
	unowned := `{"metadata":{"ownerReferences":null}}`
	s.kubectl("annotate", "replicaset", set, "ownership.kindred.dev/hold=")
	s.kubectl("patch", "pod", orphan, "--type=merge", "-p", unowned)
	s.kubectl("patch", "pod", outdated, "--type=json", "-p", `[{"op": "replace", "path": "/metadata/ownerReferences/0/apiVersion", "value": "apps/v1beta1"}]`)
	s.kubectl("patch", "pod", "agent", "--type=merge", "-p", unowned)
	held := set + ": on-hold"
	found := []string{"agent: lost-reference", orphan + ": no-owner", outdated + ": unserved-version", held}
	slices.Sort(found)
	s.finds(found, 1)

	r := s.kindred("lint", "--fix")
	s.contains(r.out, "repaired: restore the reference to ConfigMap operator", "repaired: name ReplicaSet "+set+" in version apps/v1", "2 repaired, 2 skipped")
	s.finds([]string{orphan + ": no-owner", held}, 1)
	s.kubectl("annotate", "replicaset", set, "ownership.kindred.dev/hold-")
	s.finds(nil, 0)
	for _, pod := range s.pods("app=web") {
		if owner := metav1.GetControllerOf(&pod); owner == nil || owner.Name != set || owner.APIVersion != "apps/v1" {
			t.Errorf("%s is controlled by %+v", pod.Name, owner)
		}
	}
	s.stayed(before, "")

	s.leaveTheMachine(s.pods("app=agent"), func() {
		s.kubectl("delete", "configmap", "operator")
		s.gone("pod", "agent")
	})
}

// TestMoveOfContainers: containers stop at the source and run at the target, with their volumes and
// the target's service account; then the same from a directory.
func TestMoveOfContainers(t *testing.T) {
	s := withNode(t)
	m := &migration{s, inNamespace(t, ownClusterWithNode(t), s.namespace)}
	m.apply(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {key: secret}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: robot
      volumes:
      - {name: settings, configMap: {name: settings}}
      - {name: key, secret: {secretName: key}}
      - {name: scratch, emptyDir: {medium: Memory}}
      containers:
      - name: c
        image: "` + image + `"
        command: [sh, -c, "trap exit TERM; cat /settings/greeting /key/key > /scratch/both; sleep 3600 & wait"]
        readinessProbe: {periodSeconds: 1, exec: {command: [test, -s, /scratch/both]}}
        volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: key, mountPath: /key}
        - {name: scratch, mountPath: /scratch}
`)
	roots := []string{"deployment/web", "serviceaccount/robot", "configmap/settings", "secret/key"}
	m.rolledOut("web")
	pods := m.pods("app=web")
	m.leaveTheMachine(pods, func() {
		m.moves(append(slices.Clone(roots), "--to", m.there.cluster.kubeconfig(), "--yes")...)
		m.podsGo()
	})
	m.there.runsAnew(pods)

	dir, back := filepath.Join(t.TempDir(), "web"), m.back()
	pods = back.pods("app=web")
	alive := back.lives("app=web")
	back.moves(append(slices.Clone(roots), "--to-directory", dir)...)
	back.stayed(alive, "app=web")
	back.leaveTheMachine(pods, func() {
		back.kubectl(append([]string{"delete"}, roots...)...)
		back.podsGo()
	})
	back.moves("--from-directory", dir, "--to", back.cluster.kubeconfig(), "--yes")
	back.runsAnew(pods)
}

// runsAnew checks that the moved Deployment runs other pods than before.
func (s *session) runsAnew(before []corev1.Pod) {
	s.Helper()
	s.rolledOut("web")
	pods := s.pods("app=web")
	if len(pods) != len(before) {
		s.Fatalf("%d pods", len(pods))
	}
	for _, pod := range pods {
		if slices.ContainsFunc(before, func(former corev1.Pod) bool { return former.UID == pod.UID }) {
			s.Errorf("%s has the UID that it had", pod.Name)
		}
		s.prints("hellosecret", "exec", pod.Name, "--", "cat", "/scratch/both")
		who, err := s.whoIs(s.kubectl("exec", pod.Name, "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"))
		if err != nil || who.Username != "system:serviceaccount:"+s.namespace+":robot" || who.UID != s.uid("serviceaccount/robot") ||
			!slices.Equal(who.Extra["authentication.kubernetes.io/pod-uid"], []string{string(pod.UID)}) {
			s.Errorf("%s, of UID %s, is logged in as %+v, %v", pod.Name, pod.UID, who, err)
		}
	}
}
