// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"os/signal"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// life is what must not change when the agent of a container ends.
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

// stayed checks that containers keep running, also a moment later, when a new agent has reconciled
// them.
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

// TestKilledUnderLoad: SIGKILL during writes and pod starts. No acknowledged write is lost, and no
// container restarts needlessly.
func TestKilledUnderLoad(t *testing.T) {
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	s.createWeb(3)
	before := s.lives("app=web")
	serverBefore := c.config(t).Host

	for round := range 2 {
		w := newWriters(t, c, s.namespace, fmt.Sprintf("round-%d", round))
		// Some pods are still starting when the process is killed.
		s.kubectl("create", "deployment", fmt.Sprintf("late-%d", round), "--image="+image, "--replicas=2", "--", "sh", "-c", "trap exit TERM; sleep 3600 & wait")
		time.Sleep(time.Second)
		s.eventually("much is written", w.isLoad)
		c.kill(t)
		w.stop()
		c.again(t)
		w.check(t, c)
		s.stayed(before, "app=web")
		s.rolledOut(fmt.Sprintf("late-%d", round))
	}
	// The containers got the API's port when they started.
	if after := c.config(t).Host; after != serverBefore {
		t.Errorf("the API was at %s, and is at %s now", serverBefore, after)
	}
	// The new agent manages the old containers: it notices when one ends.
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

// TestLinearizable: there is an order of all that clients wrote and read on one server, by get and by list, that explains what each of them
// saw, although the server was killed three times; and nothing with an owner was collected.
func TestLinearizable(t *testing.T) {
	c := ownCluster(t, "--no-node")
	load := newLoad(newSession(t, c), []*cluster{c, c, c, c})
	for range 3 {
		time.Sleep(3 * time.Second)
		c.kill(t)
		c.again(t)
	}
	time.Sleep(3 * time.Second)
	load.check()
}

// TestTerminated: SIGTERM ends the process in under two seconds. Containers keep running, and the
// next process adopts them.
func TestTerminated(t *testing.T) {
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	s.createWeb(2)
	// Clients with open watches must not delay it.
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
	// The new process can exec in containers that another process started.
	s.prints("web\n", "exec", s.pods("app=web")[0].Name, "--", "sh", "-c", "hostname | cut -d- -f1")
	c.terminate(t)
}

// TestInterruptedStart: a signal during the start ends the process at once, and the next one can
// start on the directory.
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
	// If this process ignores SIGINT, as a background job of a script does, so would the next one until it handles signals.
	_, restore := signal.NotifyContext(t.Context(), interrupt)
	defer restore()
	for _, after := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		c.up, err = startProcess(c.command("up", "--data-dir", c.dir, "--secure-port", "0", "--no-node", "--simulated-nodes", "1"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		began := time.Now()
		// It may already be ready; then it ends without an error.
		_ = c.signal(interrupt)
		if took := time.Since(began); took > stopLimit {
			t.Errorf("interrupted after %v, it took %v to stop", after, took)
		}
	}
	c.mustStart(t, "--no-node", "--simulated-nodes", "1")
}

// writers write continuously and record the acknowledged state.
type writers struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	// acknowledged has the last acknowledged value of each object, unsure the value of a later
	// write that failed and may have been stored.
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

// isLoad returns an error until some objects were written.
func (w *writers) isLoad() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.acknowledged); n < 20 {
		return fmt.Errorf("%d objects", n)
	}
	return nil
}

func (w *writers) stop() {
	w.cancel()
	w.wait.Wait()
}

// check checks that every acknowledged write is present.
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
	// A GET returns the same as the list.
	for name, want := range w.acknowledged {
		_, err := client.CoreV1().ConfigMaps(w.namespace).Get(context.Background(), name, metav1.GetOptions{})
		if want == deleted && !apierrors.IsNotFound(err) || want != deleted && w.unsure[name] == "" && err != nil {
			t.Errorf("%s: %q was acknowledged, and reading it gives %v", name, want, err)
		}
		break
	}
}
