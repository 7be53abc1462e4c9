// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveHostname is a web server whose page is the name of its pod. It runs in a shell, which traps
// SIGTERM, because the first process of a container ignores signals that it does not handle.
var serveHostname = []string{"--", "sh", "-c",
	"mkdir -p /www; hostname > /www/index.html; trap exit TERM; httpd -f -p 8080 -h /www & wait"}

func (s *session) createWeb(replicas int) {
	s.Helper()
	args := []string{"create", "deployment", "web", "--image=" + image, fmt.Sprintf("--replicas=%d", replicas), "--port=8080"}
	s.prints("deployment.apps/web created\n", append(args, serveHostname...)...)
	s.rolledOut("web")
}

func (s *session) rolledOut(deployment string) {
	s.Helper()
	out := s.kubectl("rollout", "status", "deployment/"+deployment, "--timeout", patience.String())
	s.contains(out, fmt.Sprintf("deployment %q successfully rolled out\n", deployment))
}

// TestDeployment rolls out, scales and deletes a Deployment with real containers.
func TestDeployment(t *testing.T) {
	s := withNode(t)
	s.createWeb(3)
	s.table("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 3/3 3 3 *", "get", "deployment", "web")
	s.table("NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR\nweb 3/3 3 3 * busybox busybox:v1 app=web",
		"get", "deployment", "web", "-o", "wide")

	// Each pod has its own address, and can reach the others there.
	pods := s.pods("app=web")
	if len(pods) != 3 {
		t.Fatalf("%d pods, want 3", len(pods))
	}
	seen := map[string]bool{}
	for _, pod := range pods {
		if pod.Status.PodIP == "" || seen[pod.Status.PodIP] {
			t.Errorf("pod %s has no address of its own: %q", pod.Name, pod.Status.PodIP)
		}
		seen[pod.Status.PodIP] = true
		s.prints(pod.Name+"\n", "exec", pods[0].Name, "--", "wget", "-q", "-O", "-", "http://"+pod.Status.PodIP+":8080/")
	}

	// A new image, a bad one, and an undo.
	s.prints("deployment.apps/web image updated\n", "set", "image", "deployment/web", "busybox="+nextImage)
	s.rolledOut("web")
	s.prints(nextImage, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	s.kubectl("set", "image", "deployment/web", "busybox=busybox:absent")
	s.eventually("the bad image is noticed", func() error {
		out := s.kubectl("get", "pods", "-l", "app=web")
		if !strings.Contains(out, "ErrImagePull") && !strings.Contains(out, "ImagePullBackOff") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	// maxUnavailable is 25 % of 3, rounded down, so no available pod may be deleted.
	s.prints("3", "get", "deployment", "web", "-o", "jsonpath={.status.availableReplicas}")
	s.contains(s.kubectl("rollout", "history", "deployment/web"), "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n3         <none>\n")
	s.prints("deployment.apps/web rolled back\n", "rollout", "undo", "deployment/web")
	s.rolledOut("web")
	s.prints(nextImage, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	s.prints("deployment.apps/web rolled back\n", "rollout", "undo", "deployment/web", "--to-revision=1")
	s.rolledOut("web")
	s.prints(image, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	s.contains(s.kubectl("rollout", "history", "deployment/web"), "REVISION  CHANGE-CAUSE\n3         <none>\n4         <none>\n5         <none>\n")
	s.contains(s.kubectl("rollout", "history", "deployment/web", "--revision=4"), "Image:\t"+nextImage, "Labels:\tapp=web")

	// Scale it while a watch is running.
	watch := s.background("get", "pods", "-l", "app=web", "-w")
	s.awaitOutput(watch, "Running")
	s.prints("deployment.apps/web scaled\n", "scale", "deployment/web", "--replicas=5")
	s.rolledOut("web")
	s.awaitOutput(watch, "ContainerCreating")
	s.prints("deployment.apps/web scaled\n", "scale", "deployment/web", "--replicas=1", "--current-replicas=5")
	s.awaitOutput(watch, "Terminating")
	s.eventually("only one pod is left", func() error {
		if n := len(s.pods("app=web")); n != 1 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})

	s.describes("deployment", "web",
		"Replicas:               1 desired | 1 updated | 1 total | 1 available | 0 unavailable",
		"StrategyType:           RollingUpdate", "RollingUpdateStrategy:  25% max unavailable, 25% max surge",
		"Available      True    MinimumReplicasAvailable", "Progressing    True    NewReplicaSetAvailable",
		"ScalingReplicaSet", "deployment-controller")

	s.prints("deployment.apps \"web\" deleted from "+s.namespace+" namespace\n", "delete", "deployment", "web")
	s.eventually("what the deployment owned goes", func() error {
		if out := s.kubectl("get", "replicasets,pods", "-o", "name"); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// TestRecreate: no pod of the new template is created before the last old one has ended.
func TestRecreate(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec:
  replicas: 2
  strategy: {type: Recreate}
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.rolledOut("one")
	before := map[string]bool{}
	for _, pod := range s.pods("app=one") {
		before[pod.Name] = true
	}
	s.kubectl("set", "image", "deployment/one", "c="+nextImage)
	overlap := false
	s.eventually("two new pods run", func() error {
		old, fresh := 0, 0
		for _, pod := range s.pods("app=one") {
			switch {
			case !before[pod.Name]:
				fresh++
			case pod.Status.Phase == corev1.PodRunning:
				old++
			}
		}
		overlap = overlap || old > 0 && fresh > 0
		if old > 0 || fresh != 2 {
			return fmt.Errorf("%d old and %d new pods", old, fresh)
		}
		return nil
	})
	if overlap {
		t.Error("old pods still ran when there were new ones")
	}
	s.rolledOut("one")
}

// TestPauseAndResume: a paused Deployment accepts changes, and applies them when it is resumed.
func TestPauseAndResume(t *testing.T) {
	s := withNode(t)
	s.createWeb(1)
	s.prints("deployment.apps/web paused\n", "rollout", "pause", "deployment/web")
	s.kubectl("set", "image", "deployment/web", "busybox="+nextImage)
	s.kubectl("scale", "deployment/web", "--replicas=2")
	s.eventually("scaling works while paused", func() error {
		if got := s.jsonpath("{.status.availableReplicas}", "deployment", "web"); got != "2" {
			return fmt.Errorf("%s replicas are available", got)
		}
		return nil
	})
	if sets := strings.Fields(s.kubectl("get", "rs", "-o", "name")); len(sets) != 1 {
		t.Errorf("a paused deployment rolled out: %v", sets)
	}
	s.prints("deployment.apps/web resumed\n", "rollout", "resume", "deployment/web")
	s.rolledOut("web")
	s.prints("2", "get", "deployment", "web", "-o", "jsonpath={.status.updatedReplicas}")
}

// TestReplicationController: the selector defaults to the template's labels, pods are adopted and
// released by their labels, and are deleted or orphaned with their ReplicationController.
func TestReplicationController(t *testing.T) {
	s := withoutNode(t)
	s.input(`
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: any/image, ports: [{containerPort: 80}]}]
`, "create", "-f", "-")
	s.available("web", 2)
	s.table("NAME DESIRED CURRENT READY AGE CONTAINERS IMAGES SELECTOR\nweb 2 2 2 * c any/image app=web", "get", "rc", "web", "-o", "wide")
	s.prints("2 2 2 1", "get", "rc", "web", "-o",
		"jsonpath={.status.fullyLabeledReplicas} {.status.readyReplicas} {.status.availableReplicas} {.status.observedGeneration}")
	pods := s.pods("app=web")
	for _, pod := range pods {
		if ref := metav1.GetControllerOf(&pod); ref == nil || ref.APIVersion != "v1" || ref.Kind != "ReplicationController" || ref.Name != "web" || !strings.HasPrefix(pod.Name, "web-") {
			t.Errorf("pod %s is controlled by %v", pod.Name, ref)
		}
		s.describes("rc", "web", "SuccessfulCreate", "replication-controller", "Created pod: "+pod.Name)
	}

	s.prints("replicationcontroller/web scaled\n", "scale", "rc", "web", "--replicas=3", "--current-replicas=2")
	s.available("web", 3)
	s.prints("service/web exposed\n", "expose", "rc", "web", "--port=80")
	s.prints("web", "get", "service", "web", "-o", "jsonpath={.spec.selector.app}")

	// A pod whose label changes is released, and replaced.
	released := pods[0].Name
	s.kubectl("label", "pod", released, "app=debug", "--overwrite")
	s.eventually("the pod is released and replaced", func() error {
		if pod := s.pod(released); len(pod.OwnerReferences) != 0 || len(s.pods("app=web")) != 3 {
			return fmt.Errorf("owners %v, and %d pods", pod.OwnerReferences, len(s.pods("app=web")))
		}
		return nil
	})

	// Orphaned pods are adopted by a ReplicationController with the same selector, and so is the
	// released one; then one pod too many is deleted.
	left := s.kubectl("get", "rc", "web", "-o", "json")
	s.kubectl("delete", "rc", "web", "--cascade=orphan")
	s.gone("rc", "web")
	orphans := s.pods("app=web")
	for _, pod := range orphans {
		if len(pod.OwnerReferences) != 0 || pod.DeletionTimestamp != nil {
			t.Errorf("pod %s of owners %v, deleted %v", pod.Name, pod.OwnerReferences, pod.DeletionTimestamp)
		}
	}
	if len(orphans) != 3 {
		t.Errorf("%d pods are left of 3", len(orphans))
	}
	s.kubectl("label", "pod", released, "app=web", "--overwrite")
	s.input(left, "create", "-f", "-")
	s.eventually("it adopts, and one too many goes", func() error {
		pods := s.pods("app=web")
		for _, pod := range pods {
			if metav1.GetControllerOf(&pod) == nil {
				return fmt.Errorf("%s has no controller", pod.Name)
			}
		}
		if len(pods) != 3 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	s.describes("rc", "web", "SuccessfulDelete", "Deleted pod: ")

	s.prints("replicationcontroller \"web\" deleted from "+s.namespace+" namespace\n", "delete", "rc", "web")
	s.eventually("its pods go", func() error {
		if n := len(s.pods("app=web")); n != 0 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
}

// TestReplicationControllerReportsFailure: the status has the reason why pods cannot be created, as
// long as it lasts. A deletion without a policy orphans the pods, as always in v1.
func TestReplicationControllerReportsFailure(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "quota", "two", "--hard=pods=2")
	s.eventually("the quota counts", func() error {
		if used := s.jsonpath("{.status.used.pods}", "quota", "two"); used != "0" {
			return fmt.Errorf("%q pods are used", used)
		}
		return nil
	})
	s.apply(`
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: any/image}]}
`)
	s.kubectl("wait", "rc/web", "--for=condition=ReplicaFailure", "--timeout", patience.String())
	s.contains(s.jsonpath("{.status.conditions[0].reason}: {.status.conditions[0].message}", "rc", "web"), "FailedCreate: ", "exceeded quota: two")
	s.kubectl("scale", "rc", "web", "--replicas=2")
	s.eventually("the failure is over", func() error {
		if got := s.jsonpath("{.status.conditions}", "rc", "web"); got != "" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	s.kubectl("delete", "--raw", "/api/v1/namespaces/"+s.namespace+"/replicationcontrollers/web")
	s.gone("rc", "web")
	for _, pod := range s.pods("app=web") {
		if len(pod.OwnerReferences) != 0 || pod.DeletionTimestamp != nil {
			t.Errorf("pod %s of owners %v, deleted %v", pod.Name, pod.OwnerReferences, pod.DeletionTimestamp)
		}
	}
	if n := len(s.pods("app=web")); n != 2 {
		t.Errorf("%d pods are left of 2", n)
	}
}

// available waits until a ReplicationController has n available pods.
func (s *session) available(rc string, n int) {
	s.Helper()
	s.kubectl("wait", "rc/"+rc, fmt.Sprintf("--for=jsonpath={.status.availableReplicas}=%d", n), "--timeout", patience.String())
}

// TestLogs reads and follows the logs of containers.
func TestLogs(t *testing.T) {
	s := withNode(t)
	s.kubectl("run", "counter", "--image="+image, "--", "sh", "-c",
		// The two streams are two pipes, so only time orders them.
		"echo out; sleep 0.5; echo err >&2; i=0; while sleep 0.2; do i=$((i+1)); echo line $i; done")
	s.ready("counter")
	follow := s.background("logs", "-f", "counter")
	s.awaitOutput(follow, "line 3\n")
	s.contains(follow.out.String(), "out\n", "err\n", "line 1\nline 2\nline 3\n")
	if lines := strings.Split(strings.TrimSpace(s.kubectl("logs", "counter", "--tail=2")), "\n"); len(lines) != 2 {
		t.Errorf("--tail=2 prints %q", lines)
	}
	s.prints("ou", "logs", "counter", "--limit-bytes=2")
	stamped := s.kubectl("logs", "counter", "--timestamps", "--tail=1")
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) line \d+\n$`).MatchString(stamped) {
		t.Errorf("--timestamps prints %q", stamped)
	}

	// A terminated container keeps its logs, and so does the previous one.
	s.kubectl("run", "twice", "--image="+image, "--restart=OnFailure", "--", "sh", "-c", "echo $(date +%s%N); exit 1")
	s.eventually("the container runs again", func() error {
		if got := s.jsonpath("{.status.containerStatuses[0].restartCount}", "pod", "twice"); got == "" || got == "0" {
			return fmt.Errorf("restart count %q", got)
		}
		return nil
	})
	if previous := s.kubectl("logs", "twice", "--previous"); len(previous) < 10 {
		t.Errorf("--previous prints %q", previous)
	}
	s.refused([]string{"container nobody is not valid for pod counter"}, "logs", "counter", "-c", "nobody")
	s.refused([]string{`pods "nobody" not found`}, "logs", "nobody")
}

// TestExec runs commands in a container, with and without a terminal.
func TestExec(t *testing.T) {
	s := withNode(t)
	s.kubectl("run", "box", "--image="+image, "--", "sleep", "3600")
	s.ready("box")
	s.prints("box\n", "exec", "box", "--", "hostname")
	if got := s.input("read from here", "exec", "-i", "box", "--", "cat"); got != "read from here" {
		t.Errorf("exec -i cat prints %q", got)
	}
	r := s.try("exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 42")
	if r.code != 42 || r.out != "out\n" || r.err != "err\ncommand terminated with exit code 42\n" {
		t.Errorf("exit status %d, stdout %q, stderr %q", r.code, r.out, r.err)
	}
	s.refused([]string{"executable file ", "no-such-program", "not found"}, "exec", "box", "--", "no-such-program")

	shell := onTerminal(t, s.command("exec", "-it", "box", "--", "sh"))
	s.awaitOutput(shell.process, "# ")
	shell.types(t, "tty; stty size; echo $((6*7))")
	s.awaitOutput(shell.process, "/dev/pts/")
	s.awaitOutput(shell.process, "40 120")
	s.awaitOutput(shell.process, "42\r\n")
	shell.types(t, "exit 7")
	select {
	case <-shell.done:
	case <-time.After(patience):
		t.Fatalf("the shell does not end: %q", shell.out)
	}
	if code := shell.cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit status %d, want 7", code)
	}
}

// TestAttach attaches to the main process of a container.
func TestAttach(t *testing.T) {
	s := withNode(t)
	shell := onTerminal(t, s.command("run", "box", "-it", "--rm", "--image="+image, "--", "sh"))
	// Output before kubectl attaches is not shown, so ask for a prompt.
	s.awaitOutput(shell.process, "If you don't see a command prompt")
	shell.types(t, "")
	s.awaitOutput(shell.process, "# ")
	shell.types(t, "echo $((6*7))")
	s.awaitOutput(shell.process, "42\r\n")
	shell.types(t, "exit")
	s.awaitOutput(shell.process, `pod "box" deleted from `+s.namespace+" namespace")
	s.gone("pod", "box")
}

// TestPortForward connects to a port of a pod from this machine.
func TestPortForward(t *testing.T) {
	s := withNode(t)
	s.createWeb(1)
	forward := s.background("port-forward", "deployment/web", ":8080")
	s.awaitOutput(forward, "Forwarding from 127.0.0.1:")
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 8080`).FindStringSubmatch(forward.out.String())
	if port == nil {
		t.Fatalf("no port in %q", forward.out)
	}
	for range 3 {
		response, err := http.Get("http://127.0.0.1:" + port[1] + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if want := s.pods("app=web")[0].Name + "\n"; err != nil || string(body) != want {
			t.Errorf("through the port comes %q, %v, want %q", body, err, want)
		}
	}
}

// TestCopy copies a directory into a container and back.
func TestCopy(t *testing.T) {
	s := withNode(t)
	s.kubectl("run", "box", "--image="+image, "--", "sleep", "3600")
	s.ready("box")
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	if err := os.MkdirAll(filepath.Join(from, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"small": "small", "deep/large": large} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.kubectl("cp", from, "box:/tmp/there")
	s.prints("small", "exec", "box", "--", "cat", "/tmp/there/small")
	s.kubectl("cp", "box:/tmp/there", to)
	back, err := os.ReadFile(filepath.Join(to, "deep", "large"))
	if err != nil || string(back) != large {
		t.Errorf("%d of %d bytes came back: %v", len(back), len(large), err)
	}
}
