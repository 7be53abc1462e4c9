// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestContainersShareAPod: the containers of a pod reach each other by localhost and by shared memory, because they have the
// same network, IPC and UTS namespaces; their processes and files are their own. Pods share none of these.
func TestContainersShareAPod(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: together}
spec:
  volumes: [{name: www, emptyDir: {}}]
  containers:
  - name: web
    image: "` + image + `"
    command: [sh, -c, "echo in memory > /dev/shm/note; exec httpd -f -p 127.0.0.1:8080 -h /www"]
    volumeMounts: [{name: www, mountPath: /www}]
  - {name: client, image: "` + image + `", command: [sleep, "3600"], volumeMounts: [{name: www, mountPath: /written}]}
---
apiVersion: v1
kind: Pod
metadata: {name: apart}
spec:
  containers: [{name: client, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.ready("together")
	s.ready("apart")
	in := func(pod, container, script string) string {
		s.Helper()
		return strings.TrimSpace(s.kubectl("exec", pod, "-c", container, "--", "sh", "-c", script))
	}
	in("together", "client", "echo on a volume > /written/page")
	if got := in("together", "client", "wget -qO- http://localhost:8080/page; cat /dev/shm/note"); got != "on a volume\nin memory" {
		t.Errorf("by localhost and shared memory: %q", got)
	}
	for namespace, shared := range map[string]bool{"net": true, "ipc": true, "uts": true, "pid": false, "mnt": false} {
		link := "readlink /proc/self/ns/" + namespace
		web, client, apart := in("together", "web", link), in("together", "client", link), in("apart", "client", link)
		if (web == client) != shared || web == apart || client == apart {
			t.Errorf("%s namespaces: %s, %s, in another pod %s", namespace, web, client, apart)
		}
	}
	s.refused([]string{"can't connect"}, "exec", "apart", "--", "wget", "-qO-", "http://"+s.pod("together").Status.PodIP+":8080/page")
	s.refused([]string{"No such file"}, "exec", "apart", "--", "cat", "/dev/shm/note")
}

// TestPodUpdates: of a pod that exists, only images, activeDeadlineSeconds and more tolerations can be changed, and a pod that
// is being deleted gets no new finalizers. While it stops, it is not ready, and its endpoint is terminating.
func TestPodUpdates(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: changed, labels: {app: web}, finalizers: [example.com/keep]}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: c
    image: "` + image + `"
    command: [sh, -c, "trap 'while [ -e /tmp/slow ]; do sleep 0.1; done; exit 0' TERM; sleep 3600 & wait"]
---
apiVersion: v1
kind: Pod
metadata: {name: hurried}
spec:
  containers: [{name: c, image: "` + image + `", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]}]
`)
	t.Cleanup(func() { s.try("patch", "pod", "changed", "--type=merge", "-p", `{"metadata": {"finalizers": null}}`) })
	s.ready("changed")
	s.refused([]string{`The Pod "changed" is invalid: spec: Forbidden: pod updates may not change fields other than`},
		"patch", "pod", "changed", "-p", `{"spec": {"containers": [{"name": "c", "command": ["true"]}]}}`)
	s.kubectl("patch", "pod", "changed", "-p", `{"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}`)
	s.kubectl("set", "image", "pod/changed", "c="+nextImage)
	s.eventually("the container starts again, with the new image", func() error {
		if status := s.containerStatus("changed"); status.RestartCount != 1 || !status.Ready {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	s.ready("hurried")
	s.kubectl("patch", "pod", "hurried", "-p", `{"spec": {"activeDeadlineSeconds": 1}}`)
	s.phase("hurried", corev1.PodFailed)
	if status := s.pod("hurried").Status; status.Reason != "DeadlineExceeded" {
		t.Errorf("hurried failed because of %s", status.Reason)
	}

	s.kubectl("exec", "changed", "--", "touch", "/tmp/slow")
	s.kubectl("delete", "pod", "changed", "--wait=false")
	s.contains(s.kubectl("get", "pod", "changed"), "Terminating")
	s.eventually("its endpoint is terminating", func() error {
		got := s.jsonpath("{.items[*].endpoints[*].conditions}", "endpointslices", "-l", "kubernetes.io/service-name=web")
		if got != `{"ready":false,"serving":true,"terminating":true}` && got != `{"ready":false,"serving":false,"terminating":true}` {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	s.refused([]string{"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"},
		"patch", "pod", "changed", "--type=merge", "-p", `{"metadata": {"finalizers": ["example.com/keep", "example.com/more"]}}`)
	s.kubectl("exec", "changed", "--", "rm", "/tmp/slow")
	s.phase("changed", corev1.PodSucceeded)
	s.kubectl("patch", "pod", "changed", "--type=merge", "-p", `{"metadata": {"finalizers": null}}`)
	s.gone("pod", "changed")
}
