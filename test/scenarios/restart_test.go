// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// life is what must not change when the process that looks after a container ends.
type life struct {
	Pod       string
	Container string // its ID at the runtime
	Restarts  int32
	StartedAt time.Time
	IP        string
	Node      string
}

func (s *session) lives(selector string) map[string]life {
	s.Helper()
	lives := map[string]life{}
	for _, pod := range s.pods(selector) {
		for _, c := range pod.Status.ContainerStatuses {
			l := life{Pod: string(pod.UID), Container: c.ContainerID, Restarts: c.RestartCount, IP: pod.Status.PodIP, Node: pod.Spec.NodeName}
			if c.State.Running != nil {
				l.StartedAt = c.State.Running.StartedAt.UTC()
			}
			lives[pod.Name+"/"+c.Name] = l
		}
	}
	return lives
}

// stayed checks that containers lived on, and that they still do a moment later, when
// everything that a new agent could want to mend has been mended.
func (s *session) stayed(before map[string]life, selector string) {
	s.Helper()
	for range 2 {
		if diff := cmp.Diff(before, s.lives(selector)); diff != "" {
			s.Errorf("containers were disturbed:\n%s", diff)
			return
		}
		time.Sleep(2 * time.Second)
	}
}

// TestKilledUnderLoad: SIGKILL while writes and pods are under way. No acknowledged write
// is lost, and nothing is restarted that need not be.
func TestKilledUnderLoad(t *testing.T) {
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	s.createWeb(3)
	before := s.lives("app=web")
	serverBefore := c.config(t).Host

	for round := range 2 {
		w := newWriters(t, c, s.namespace, fmt.Sprintf("round-%d", round))
		// Pods too are under way when the process dies.
		s.kubectl("create", "deployment", fmt.Sprintf("late-%d", round), "--image="+image, "--replicas=2", "--", "sh", "-c", "trap exit TERM; sleep 3600 & wait")
		time.Sleep(time.Second)
		c.kill(t)
		w.stop()
		c.again(t)
		w.check(t, c)
		s.stayed(before, "app=web")
		s.rolledOut(fmt.Sprintf("late-%d", round))
	}
	// The containers were told of the API's port when they started.
	if after := c.config(t).Host; after != serverBefore {
		t.Errorf("the API was at %s, and is at %s now", serverBefore, after)
	}
	// What was left by the dead agent is looked after: a container that ends is noticed.
	victim := s.pods("app=web")[0]
	s.kubectl("exec", victim.Name, "--", "sh", "-c", "kill $(pidof httpd)")
	s.eventually("the container that ended is restarted", func() error {
		if got := s.pod(victim.Name).Status.ContainerStatuses[0]; got.RestartCount != 1 || !got.Ready {
			return fmt.Errorf("restart count %d, ready %v", got.RestartCount, got.Ready)
		}
		return nil
	})
	s.kubectl("delete", "deployment", "web", "late-0", "late-1")
	s.eventually("pods made before the crash can be deleted", func() error {
		if pods := s.pods(""); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
}

// TestTerminated: SIGTERM ends the process in under two seconds. Containers run on, and
// the next process takes them over.
func TestTerminated(t *testing.T) {
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	s.createWeb(2)
	// Clients that hang on must not keep it.
	s.background("get", "pods", "-w")
	s.background("logs", "-f", "deployment/web")
	before := s.lives("app=web")

	c.terminate(t)
	s.refused([]string{"was refused"}, "get", "pods")
	if r := c.run("status"); r.code != 1 || !containsAll(r.err, "no cluster runs in") {
		t.Errorf("status after the end: exit status %d: %s%s", r.code, r.out, r.err)
	}
	for name, l := range before {
		if err := reachable(l.IP); err != nil {
			t.Errorf("%s does not run on without the cluster: %v", name, err)
		}
	}

	c.again(t)
	s.stayed(before, "app=web")
	// It streams from containers that another process started.
	s.prints("web\n", "exec", s.pods("app=web")[0].Name, "--", "sh", "-c", "hostname | cut -d- -f1")
	c.terminate(t)
}

// TestInterruptedStart: a process that is told to stop while it starts does so at once,
// and leaves a directory that the next one starts from.
func TestInterruptedStart(t *testing.T) {
	c, err := newCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.remove(); err != nil {
			t.Error(err)
		}
	})
	for _, after := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		c.up, err = startProcess(c.command("up", "--data-dir", c.dir, "--secure-port", "0", "--no-node", "--simulated-nodes", "1"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		began := time.Now()
		// It may already be ready, and then ends without an error.
		_ = c.signal(interrupt)
		if took := time.Since(began); took > stopLimit {
			t.Errorf("interrupted after %v, it took %v to stop", after, took)
		}
	}
	c.mustStart(t, "--no-node", "--simulated-nodes", "1")
}

// writers write without pause and remember what was acknowledged.
type writers struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	// acknowledged is the last acknowledged value of each object. Where a later write
	// failed, that may have happened or not: unsure has its value.
	acknowledged, unsure map[string]string
	namespace, prefix    string
}

const deleted = "deleted"

func newWriters(t *testing.T, c *cluster, namespace, prefix string) *writers {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{cancel: cancel, acknowledged: map[string]string{}, unsure: map[string]string{}, namespace: namespace, prefix: prefix}
	for i := range 4 {
		client := c.client(t)
		w.wait.Go(func() { w.write(ctx, client, i) })
	}
	return w
}

// write creates objects, updates them and deletes every third of them.
func (w *writers) write(ctx context.Context, client kubernetes.Interface, writer int) {
	objects := client.CoreV1().ConfigMaps(w.namespace)
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d-%d", w.prefix, writer, n)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": "one"}}
		created, err := objects.Create(ctx, object, metav1.CreateOptions{})
		if !w.note(name, "one", err) {
			return
		}
		created.Data["value"] = "two"
		_, err = objects.Update(ctx, created, metav1.UpdateOptions{})
		if !w.note(name, "two", err) {
			return
		}
		if n%3 > 0 {
			continue
		}
		if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); !w.note(name, deleted, err) {
			return
		}
	}
}

func (w *writers) note(name, value string, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.unsure[name] = value
		return false
	}
	w.acknowledged[name] = value
	return true
}

func (w *writers) stop() {
	w.cancel()
	w.wait.Wait()
}

// check looks for every write that was acknowledged.
func (w *writers) check(t *testing.T, c *cluster) {
	t.Helper()
	client := c.client(t)
	list, err := client.CoreV1().ConfigMaps(w.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	for _, object := range list.Items {
		stored[object.Name] = object.Data["value"]
	}
	if len(w.acknowledged) < 20 {
		t.Errorf("only %d objects were written: that is no load", len(w.acknowledged))
	}
	for name, want := range w.acknowledged {
		got, found := stored[name]
		if !found {
			got = deleted
		}
		if maybe, unsure := w.unsure[name]; got != want && (!unsure || got != maybe) {
			t.Errorf("%s: %q was acknowledged, and now it is %q", name, want, got)
		}
	}
	t.Logf("%d objects are as acknowledged", len(w.acknowledged))
	// A read of one object, not from a list, agrees.
	for name, want := range w.acknowledged {
		_, err := client.CoreV1().ConfigMaps(w.namespace).Get(context.Background(), name, metav1.GetOptions{})
		if want == deleted && !apierrors.IsNotFound(err) || want != deleted && w.unsure[name] == "" && err != nil {
			t.Errorf("%s: %q was acknowledged, and reading it gives %v", name, want, err)
		}
		break
	}
}
