// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/test/etcd"
)

// takeover is the time within which another server leads.
const takeover = 5 * time.Second

// TestServers: three servers on one etcd and a machine with pods. The loss of the server that leads, by a crash, a stop of the
// process for a while, and a clean stop, is followed by another one within five seconds. What was acknowledged is kept, the pods run on,
// and their machine stays Ready.
func TestServers(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("several machines cannot share one runtime")
	}
	l := newLAN(t)
	serversOf(t, l, "--server", "--etcd-servers", etcd.At(t, t.TempDir(), l.host))
}

// TestMembers is TestServers with an etcd cluster that the servers' embedded etcds are.
func TestMembers(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("several machines cannot share one runtime")
	}
	serversOf(t, newLAN(t), "--etcd-embedded")
}

// serversOf runs the scenario with the store of the first server.
func serversOf(t *testing.T, l *lan, store ...string) {
	t.Helper()
	node := l.machine(9)
	all := []*cluster{l.server(1, append(store, "--no-node")...)}
	for i := range 2 {
		all = append(all, l.server(2+i, append(serverInvitation(t, all[0]), "--no-node")...))
	}
	s := newSession(t, all[2])
	node.resetAfterwards()
	node.join(append(s.invitation(), "--node-name", secondNode)...)
	node.loadImages()
	s.deploys("web", 2)
	s.resolves("web")
	s.reachedByServers(all, "web")
	s.tokensHold(all)
	s.givesOnce(all)
	s.deletes("former")
	write := newSteadyWriter(s, all)
	began := time.Now()

	led := s.leader()
	lost := led.of(t, all)
	lost.kill(t)
	killed := time.Now()
	s = s.on(all, lost)
	led = s.follows(led, killed, takeover, "a crash")
	s.scales("web", 3)
	s.comesBackFrom(all, lost, "former")
	if r := s.cluster.run("status"); r.out == "" || strings.Contains(r.err, "grpc") {
		t.Errorf("status while a server is away: %s%s", r.out, r.err)
	}
	lost.again(t)

	stopped := led.of(t, all)
	s = s.on(all, stopped)
	if err := stopped.up.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	halted := time.Now()
	next := s.follows(led, halted, takeover, "a stop of the process")
	s.scales("web", 4)
	if err := stopped.up.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.scales("web", 3)
	if now := s.leader(); now.name != next.name {
		t.Errorf("%s leads and not %s, after %s goes on", now.name, next.name, led.name)
	}

	leaving := next.of(t, all)
	s = s.on(all, leaving)
	leaving.terminate(t)
	s.follows(next, time.Now(), 2*time.Second, "a clean stop")
	s.scales("web", 2)
	leaving.again(t)

	write.check()
	for _, pod := range s.pods("app=web") {
		if pod.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("pod %s was restarted", pod.Name)
		}
	}
	second, err := s.cluster.client(t).CoreV1().Nodes().Get(t.Context(), secondNode, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range second.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || c.LastTransitionTime.Time.After(began)) {
			t.Errorf("the node is Ready=%s since %s, and the servers were lost after %s", c.Status, c.LastTransitionTime, began)
		}
	}
	if r := node.run("leave", "--force"); r.code != 0 {
		t.Errorf("leave: %d, %q, %q", r.code, r.out, r.err)
	}
}

// serverInvitation returns the arguments of "kindred up" that "kindred token create --server" prints.
func serverInvitation(t *testing.T, c *cluster) []string {
	t.Helper()
	r := c.run("token", "create", "--server")
	line := strings.Fields(r.out)
	if r.code != 0 || len(line) < 3 || line[0] != "kindred" || line[1] != "up" {
		t.Fatalf("token create --server: %d, %q, %s", r.code, r.out, r.err)
	}
	return line[2:]
}

// leadership is which server leads.
type leadership struct{ name, url string }

// leader returns the server that leads; none if no server holds the lease, or the store has no leader of its own and answers nothing.
func (s *session) leader() leadership {
	s.Helper()
	leases := s.cluster.client(s.T).CoordinationV1().Leases(metav1.NamespaceSystem)
	led, err := leases.Get(s.Context(), "kindred-leader", metav1.GetOptions{})
	if err != nil || led.Spec.HolderIdentity == nil || *led.Spec.HolderIdentity == "" {
		return leadership{}
	}
	server, err := leases.Get(s.Context(), "kindred-server-"+*led.Spec.HolderIdentity, metav1.GetOptions{})
	if err != nil {
		return leadership{}
	}
	return leadership{server.Name, server.Annotations["kindred.dev/url"]}
}

// of returns the one of several servers that leads.
func (l leadership) of(t *testing.T, all []*cluster) *cluster {
	t.Helper()
	for _, c := range all {
		if c.config(t).Host == l.url {
			return c
		}
	}
	t.Fatalf("%+v leads, which is none of the servers", l)
	return nil
}

// on returns the session on another server than the given one.
func (s *session) on(all []*cluster, not *cluster) *session {
	other := *s
	other.cluster = all[slices.IndexFunc(all, func(c *cluster) bool { return c != not && c.running() })]
	return &other
}

// busyMachine is by how much more time than promised a takeover may take on a machine that does other work. What is promised is
// logged, and measured on machines that do not.
const busyMachine = 2

// follows waits until another server leads, and returns it.
func (s *session) follows(old leadership, since time.Time, limit time.Duration, what string) (now leadership) {
	s.Helper()
	s.within(busyMachine*limit+10*time.Second, "another server leads after "+what, func() error {
		if now = s.leader(); now.name == "" || now.name == old.name {
			return fmt.Errorf("%+v leads", now)
		}
		return nil
	})
	took := time.Since(since).Round(10 * time.Millisecond)
	s.Logf("after %s another server leads within %v; promised are %v", what, took, limit)
	if took > busyMachine*limit {
		s.Errorf("another server leads %v after %s, much more than %v", took, what, limit)
	}
	return now
}

func (s *session) deploys(name string, replicas int) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: "%[3]s"
        command: [sh, -c, "mkdir /www; echo here > /www/index.html; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
`, name, replicas, image))
	s.areReady(name, replicas)
}

// reachedByServers: each server connects to a pod, as it does to webhooks, though it has no pods of its own.
func (s *session) reachedByServers(all []*cluster, name string) {
	s.Helper()
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/", s.namespace, s.pods("app=" + name)[0].Name)
	for _, c := range all {
		on := *s
		on.cluster = c
		s.eventually("a server reaches a pod", func() error {
			if r := on.try("get", "--raw", path); r.out != "here\n" {
				return fmt.Errorf("%q, %s", r.out, r.err)
			}
			return nil
		})
	}
}

// resolves: the pods of a Deployment have the cluster's DNS, from their own machine: the servers have no nodes.
func (s *session) resolves(name string) {
	s.Helper()
	pod := s.pods("app=" + name)[0].Name
	s.eventually("the name of the API is known", func() error {
		if r := s.try("exec", pod, "--", "nslookup", "-type=a", "kubernetes.default.svc.cluster.local"); !strings.Contains(r.out, "Address: 10.96.0.1") {
			return fmt.Errorf("%q, %s", r.out, r.err)
		}
		return nil
	})
}

// scales changes a Deployment, and waits until it has exactly as many pods, all Ready.
func (s *session) scales(name string, replicas int) {
	s.Helper()
	s.kubectl("scale", "deployment", name, fmt.Sprintf("--replicas=%d", replicas))
	s.areReady(name, replicas)
}

func (s *session) areReady(name string, replicas int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has %d pods", name, replicas), func() error {
		d, err := s.cluster.client(s.T).AppsV1().Deployments(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pods := len(s.pods("app=" + name)); d.Status.ReadyReplicas != int32(replicas) || pods != replicas {
			return fmt.Errorf("%d of %d pods are ready", d.Status.ReadyReplicas, pods)
		}
		return nil
	})
}

// steadyWriter creates ConfigMaps on any of the servers, one after the other, until it is checked.
type steadyWriter struct {
	*session
	clients []kubernetes.Interface
	stop    context.CancelFunc
	done    sync.WaitGroup
	// acknowledged are the names of ConfigMaps whose creation has succeeded.
	acknowledged []string
	pause        time.Duration
	// failed are the errors of requests that no repetition has mended.
	failed []error
}

func newSteadyWriter(s *session, all []*cluster) *steadyWriter {
	s.Helper()
	w := &steadyWriter{session: s, clients: clientsOf(s.T, all, 2*time.Second)}
	ctx, stop := context.WithCancel(s.Context())
	w.stop = stop
	w.done.Go(func() { w.run(ctx) })
	s.Cleanup(func() {
		stop()
		w.done.Wait()
	})
	return w
}

// repeatLimit is the time in which the repetitions of a request must succeed. It is longer than the row of the table in docs/failures.md with
// the longest pause.
const repeatLimit = time.Minute

func (w *steadyWriter) run(ctx context.Context) {
	last := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("written-%d", n)
		err := w.create(ctx, name, n)
		switch {
		case err == nil:
			w.acknowledged = append(w.acknowledged, name)
			w.pause, last = max(w.pause, time.Since(last)), time.Now()
		case ctx.Err() == nil:
			w.failed = append(w.failed, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// create tries a ConfigMap on one server after the other, as a client with several servers does. If it exists, an attempt without an answer
// has created it.
func (w *steadyWriter) create(ctx context.Context, name string, first int) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	began := time.Now()
	for n := first; ; n++ {
		_, err := w.clients[n%len(w.clients)].CoreV1().ConfigMaps(w.namespace).Create(ctx, object, metav1.CreateOptions{})
		if err == nil || n > first && apierrors.IsAlreadyExists(err) {
			return nil
		}
		if ctx.Err() != nil || time.Since(began) > repeatLimit {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// check ends the writing: all that was acknowledged is stored.
func (w *steadyWriter) check() {
	w.Helper()
	w.stop()
	w.done.Wait()
	stored, err := w.cluster.client(w.T).CoreV1().ConfigMaps(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	names := map[string]bool{}
	for _, object := range stored.Items {
		names[object.Name] = true
	}
	missing := slices.DeleteFunc(slices.Clone(w.acknowledged), func(name string) bool { return names[name] })
	w.Logf("%d writes were acknowledged, with pauses of at most %v", len(w.acknowledged), w.pause)
	if len(w.failed) > 0 {
		w.Errorf("requests that failed for %v on all servers: %v", repeatLimit, w.failed)
	}
	if len(missing) > 0 || len(w.acknowledged) < 100 {
		w.Errorf("of %d acknowledged writes, these are lost: %v", len(w.acknowledged), missing)
	}
}

// TestVolumesOfMachines: a claim gets its volume on the machine of its pod, whichever server leads and also on a machine that is no server,
// and the volume is removed there.
func TestVolumesOfMachines(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("several machines cannot share one runtime")
	}
	l := newLAN(t)
	first := l.serverWithNode(1, "--server", "--node-name", "one", "--etcd-servers", etcd.At(t, t.TempDir(), l.host))
	second := l.serverWithNode(2, append(serverInvitation(t, first), "--node-name", "two")...)
	s := newSession(t, second)
	joined := l.machine(3)
	joined.resetAfterwards()
	joined.join(append(s.invitation(), "--node-name", "three")...)
	joined.loadImages()
	for node, dir := range map[string]string{"one": first.dir, "two": second.dir, "three": joined.dir} {
		s.apply(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-%[1]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: on-%[1]s}
spec:
  nodeSelector: {kubernetes.io/hostname: %[1]s}
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "%[2]s", command: [sh, -c, "echo %[1]s > /data/written; sleep 100000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-%[1]s}}]
`, node, image))
		s.ready("on-" + node)
		written := func() []string {
			found, err := filepath.Glob(filepath.Join(dir, "volumes", "*", "written"))
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		s.eventually("the volume is on the machine of its pod", func() error {
			if len(written()) != 1 {
				return fmt.Errorf("%v", written())
			}
			return nil
		})
		s.kubectl("delete", "pod", "on-"+node)
		s.kubectl("delete", "pvc", "data-"+node)
		s.eventually("the volume is removed", func() error {
			if len(written()) > 0 {
				return fmt.Errorf("%v", written())
			}
			return nil
		})
	}
}
