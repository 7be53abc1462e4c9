// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDebug: kubectl debug adds a container to a running pod, and copies a pod with changes. ([TestNodeAPI] debugs a node.)
func TestDebug(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "` + image + `", command: [sleep, "4711"]}
  - {name: other, image: "` + image + `", command: [sleep, "4712"]}
`)
	s.ready("sick")
	before := s.pod("sick")

	shell := onTerminal(t, s.command("debug", "-it", "sick", "--image="+nextImage, "--target=main", "-c", "doctor", "--profile=general", "--", "sh"))
	s.awaitOutput(shell.process, "# ")
	// With the process namespace of its target alone.
	shell.types(t, "ps; echo $((6*7))")
	s.awaitOutput(shell.process, "42\r\n")
	if out := shell.out.String(); !strings.Contains(out, "sleep 4711") || strings.Contains(out, "sleep 4712") {
		t.Errorf("the processes of the target are\n%s", out)
	}
	shell.types(t, "exit 5")
	s.eventually("the debugging container ends", func() error {
		statuses := s.pod("sick").Status.EphemeralContainerStatuses
		if len(statuses) != 1 || statuses[0].State.Terminated == nil || statuses[0].State.Terminated.ExitCode != 5 {
			return fmt.Errorf("%+v", statuses)
		}
		return nil
	})

	// Neither its exit nor its failure concerns the pod, and it is not started again.
	after := s.pod("sick")
	for i, status := range after.Status.ContainerStatuses {
		if status.ContainerID != before.Status.ContainerStatuses[i].ContainerID || !status.Ready {
			t.Errorf("container %s: %+v", status.Name, status)
		}
	}
	if n := after.Status.EphemeralContainerStatuses[0].RestartCount; n != 0 || after.Status.Phase != corev1.PodRunning {
		t.Errorf("%d restarts, phase %s", n, after.Status.Phase)
	}
	s.kubectl("debug", "sick", "--image="+image, "-c", "second", "--profile=general", "--", "sh", "-c", "cat /proc/1/cmdline; echo; hostname")
	s.eventually("its log", func() error {
		if out := s.try("logs", "sick", "-c", "second").out; !strings.HasSuffix(out, "\nsick\n") || strings.Contains(out, "4711") {
			return fmt.Errorf("%q", out)
		}
		return nil
	})
	s.refused([]string{"Forbidden"}, "patch", "pod", "sick", "--subresource=ephemeralcontainers", "--type=json", "-p", `[{"op": "remove", "path": "/spec/ephemeralContainers/0"}]`)

	s.kubectl("debug", "sick", "--copy-to=copy", "--set-image=main="+nextImage, "--share-processes", "--container=other", "--profile=general", "--", "sleep", "4713")
	s.ready("copy")
	out := s.kubectl("exec", "copy", "-c", "main", "--", "ps")
	s.contains(out, "sleep 4711", "sleep 4713")
	if strings.Contains(out, "sleep 4712") {
		t.Errorf("the copy's processes are\n%s", out)
	}
	s.prints(nextImage+" "+image, "get", "pod", "copy", "-o", "jsonpath={.spec.containers[*].image}")
}

// TestStreams: exec, attach and port-forward work over WebSockets, which kubectl prefers, and over SPDY.
func TestStreams(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: box}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: "` + image + `"
    stdin: true
    command: [sh, -c, "mkdir /www; echo page > /www/index.html; httpd -p 8080 -h /www; while read line; do echo got $line; done; sleep 3600"]
`)
	s.ready("box")
	for upgrade, on := range map[string]string{"websocket": "true", "SPDY/3.1": "false"} {
		// With this verbosity kubectl prints the headers of the answer.
		with := func(args ...string) *exec.Cmd {
			cmd := s.command(append([]string{"-v=8"}, args...)...)
			cmd.Env = append(cmd.Env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+on, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+on)
			return cmd
		}
		upgraded := func(output string) {
			t.Helper()
			if !strings.Contains(output, "Upgrade: "+upgrade) {
				t.Errorf("no %s in\n%s", upgrade, output)
			}
		}

		r := runCommand(with("exec", "-i", "box", "--", "sh", "-c", "cat; exit 6"), "read from here")
		if r.code != 6 || r.out != "read from here" {
			t.Errorf("exec over %s: exit status %d, %q", upgrade, r.code, r.out)
		}
		upgraded(r.err)

		attached := with("attach", "-i", "box")
		input, err := attached.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		attach, err := startProcess(attached)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(attach.end)
		fmt.Fprintln(input, upgrade)
		s.awaitOutput(attach, "got "+upgrade+"\n")
		upgraded(attach.out.String())
		attach.end()

		forward, err := startProcess(with("port-forward", "box", ":8080"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(forward.end)
		s.awaitOutput(forward, "Forwarding from 127.0.0.1:")
		port := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 8080`).FindStringSubmatch(forward.out.String())
		if port == nil {
			t.Fatalf("no port in %q", forward.out)
		}
		response, err := http.Get("http://127.0.0.1:" + port[1] + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != "page\n" {
			t.Errorf("through the port comes %q, %v", body, err)
		}
		upgraded(forward.out.String())
	}
}
