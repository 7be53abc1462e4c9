// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// staticPod returns the manifest of a static web server. It ends on SIGTERM.
func staticPod(name, says string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: c
    image: %s
    command: [sh, -c, "mkdir /www; echo %s > /www/index.html; httpd -p 8080 -h /www; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
`, name, name, image, says)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// staticSession is a cluster whose node has a directory of static pods.
type staticSession struct {
	*testing.T
	c      *cluster
	client kubernetes.Interface
	dir    string
}

// pod waits until a mirror pod is as wanted.
func (s *staticSession) pod(name, what string, wanted func(*v1.Pod) bool) *v1.Pod {
	s.Helper()
	var last *v1.Pod
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		last, err = s.client.CoreV1().Pods("default").Get(s.Context(), name, metav1.GetOptions{})
		if err == nil && wanted(last) {
			return last
		}
	}
	s.Fatalf("pod %s is not %s: %v, %+v\n%s", name, what, err, last, s.c.logs())
	return nil
}

func (s *staticSession) gone(name string) {
	s.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err = s.client.CoreV1().Pods("default").Get(s.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return
		}
	}
	s.Fatalf("pod %s is still there: %v\n%s", name, err, s.c.logs())
}

func isReadyPod(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

func containerOf(p *v1.Pod) string { return p.Status.ContainerStatuses[0].ContainerID }

// TestStaticPods: the pods of a directory run on the node and are shown by mirror pods. Clients cannot stop them. A changed
// file replaces the pod; the pods survive the process, and those whose file was removed meanwhile do not.
func TestStaticPods(t *testing.T) {
	needContainers(t)
	dir := t.TempDir()
	config := filepath.Join(t.TempDir(), "kubelet.yaml")
	writeFile(t, config, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: "+dir+"\nfileCheckFrequency: 2s\n")
	args := []string{"--node-name", "n", "--kubelet-config", config}
	c := ownClusterWithNode(t, args...)
	s := &staticSession{T: t, c: c, client: c.client(t), dir: dir}

	writeFile(t, filepath.Join(dir, "web.yaml"), staticPod("web", "one"))
	writeFile(t, filepath.Join(dir, "job.yaml"), staticPod("other", "other"))
	web := s.pod("web-n", "ready", isReadyPod)
	other := s.pod("other-n", "ready", isReadyPod)
	if owner := web.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Node" || owner[0].Name != "n" || !*owner[0].Controller {
		t.Errorf("the owner of the mirror pod is %+v", owner)
	}
	if web.Generation != 1 || web.Status.ObservedGeneration != 0 {
		t.Errorf("the mirror pod has the generation %d, of which %d is observed", web.Generation, web.Status.ObservedGeneration)
	}
	if a := web.Annotations; a["kubernetes.io/config.source"] != "file" || a["kubernetes.io/config.mirror"] != a["kubernetes.io/config.hash"] || a["kubernetes.io/config.seen"] == "" {
		t.Errorf("the annotations of the mirror pod are %v", a)
	}
	if err := reachable(web.Status.PodIP); err != nil {
		t.Error(err)
	}
	if r := c.kubectl("exec", "web-n", "--", "cat", "/www/index.html"); !strings.Contains(r.out, "one") {
		t.Errorf("exec: %s%s", r.out, r.err)
	}

	t.Log("a deleted mirror pod is created again, and the container runs on")
	if err := s.client.CoreV1().Pods("default").Delete(t.Context(), "web-n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := s.pod("web-n", "created again", func(p *v1.Pod) bool { return p.UID != web.UID && isReadyPod(p) })
	if containerOf(again) != containerOf(web) || again.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container was touched: %+v", again.Status.ContainerStatuses[0])
	}

	t.Log("a pod with the annotation of a mirror pod that a client creates is removed")
	forged := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{v1.MirrorPodAnnotationKey: "abc"}},
		Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: image}}},
	}
	if _, err := s.client.CoreV1().Pods("default").Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.gone("forged")

	t.Log("a bad file disturbs no other pod, and is an event of the node")
	writeFile(t, filepath.Join(dir, "bad.yaml"), "kind: [")
	s.event("FailedValidation", "bad.yaml")

	t.Log("a changed file replaces the pod")
	writeFile(t, filepath.Join(dir, "web.yaml"), staticPod("web", "two"))
	changed := s.pod("web-n", "replaced", func(p *v1.Pod) bool {
		return p.Annotations["kubernetes.io/config.hash"] != web.Annotations["kubernetes.io/config.hash"] && isReadyPod(p)
	})
	if containerOf(changed) == containerOf(web) {
		t.Error("the container is the same")
	}

	t.Log("the process is killed, and one file removed")
	c.kill(t)
	if err := os.Remove(filepath.Join(dir, "job.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := reachable(changed.Status.PodIP); err != nil {
		t.Errorf("while there is no agent: %v", err)
	}
	c.mustStart(t, args...)
	s.client = c.client(t)
	s.gone("other-n")
	// The mirror pod may be gone before the containers, which have no worker that knows their manifest.
	for end := time.Now().Add(time.Minute); reachable(other.Status.PodIP) == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pod without file runs")
		}
	}
	adopted := s.pod("web-n", "adopted", isReadyPod)
	if containerOf(adopted) != containerOf(changed) || adopted.UID != changed.UID || adopted.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container was not adopted: %+v", adopted.Status.ContainerStatuses[0])
	}

	t.Log("a file that is removed and written again restarts its pod")
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "web.yaml"), staticPod("web", "two"))
	s.pod("web-n", "restarted", func(p *v1.Pod) bool { return isReadyPod(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })

	t.Log("a removed file stops its pod")
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	s.gone("web-n")
	if err := reachable(adopted.Status.PodIP); err == nil {
		t.Error("the pod without file runs")
	}
}

// event waits for an event about the node.
func (s *staticSession) event(reason, text string) {
	s.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		events, err := s.client.CoreV1().Events("default").List(s.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
		if err != nil {
			s.Fatal(err)
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, text) {
				return
			}
		}
	}
	s.Fatalf("no event %s with %q", reason, text)
}

// TestNodeAlone: a node agent runs static pods without an API server. Its own server shows them.
func TestNodeAlone(t *testing.T) {
	needContainers(t)
	dir := t.TempDir()
	c, err := newCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.remove(); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "web.yaml")
	startNode(t, c, dir)
	if err := c.loadImages(); err != nil {
		t.Fatal(err)
	}
	port := unusedPort(t)
	writeFile(t, file, strings.Replace(staticPod("web", "alone"), "  - name: c\n", fmt.Sprintf("  - name: c\n    ports: [{containerPort: 8080, hostPort: %d}]\n", port), 1))
	web := podAlone(t, c, "web-n", isReadyPod)
	if err := reachable(web.Status.PodIP); err != nil {
		t.Error(err)
	}
	// The host port is open on the machine, and stays open without an agent.
	atHost := func(when string) {
		t.Helper()
		if userRuntime != "" {
			return // host ports are those of its CNI configuration (docs/runtimes.md)
		}
		response, err := (&http.Client{Timeout: 5 * time.Second}).Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			t.Errorf("%s: %v", when, err)
			return
		}
		response.Body.Close()
	}
	atHost("at first")

	for how, end := range map[string]func(*testing.T){"SIGTERM": c.terminate, "SIGKILL": c.kill} {
		end(t)
		if err := reachable(web.Status.PodIP); err != nil {
			t.Errorf("after %v: %v", how, err)
		}
		atHost("after " + how)
		startNode(t, c, dir)
		if adopted := podAlone(t, c, "web-n", isReadyPod); containerOf(adopted) != containerOf(web) {
			t.Errorf("after %v, the container is another one", how)
		}
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	podAlone(t, c, "", nil)
	if err := reachable(web.Status.PodIP); err == nil {
		t.Error("the pod without file runs")
	}
	if conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second); err == nil {
		conn.Close()
		t.Error("the host port of the pod without file is open")
	}
}

// kubectl runs kubectl with the kubeconfig of the data directory.
func (c *cluster) kubectl(args ...string) result {
	return runCommand(c.command(append([]string{"kubectl", "--kubeconfig", c.kubeconfig()}, args...)...), "")
}

// startNode starts "kindred node", and returns when its node is ready.
func startNode(t *testing.T, c *cluster, dir string) {
	t.Helper()
	flags := []string{"node", "--data-dir", c.dir, "--static-pods", dir, "--node-name", "n"}
	if userRuntime != "" {
		flags = append(flags, "--container-runtime-endpoint", userRuntime)
	}
	var err error
	if c.up, err = startProcess(c.command(flags...)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(startLimit); !strings.Contains(c.up.out.String(), "ready in "); time.Sleep(20 * time.Millisecond) {
		if !c.running() || time.Now().After(end) {
			t.Fatalf("kindred node is not ready: %s\n%s", c.up.out, c.logs())
		}
	}
}

// podAlone waits until the agent shows a pod as wanted, or no pod if name is empty.
func podAlone(t *testing.T, c *cluster, name string, wanted func(*v1.Pod) bool) *v1.Pod {
	t.Helper()
	var r result
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		r = c.kubectl("get", "--raw", "/pods")
		var pods v1.PodList
		if r.code != 0 || json.NewDecoder(bytes.NewBufferString(r.out)).Decode(&pods) != nil {
			continue
		}
		if name == "" && len(pods.Items) == 0 {
			return nil
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Name == name && wanted(p) {
				return p
			}
		}
	}
	t.Fatalf("pod %q is not as wanted: %s%s\n%s", name, r.out, r.err, c.logs())
	return nil
}
