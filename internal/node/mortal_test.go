// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/config"
)

var errKilled = errors.New("the agent was killed")

// lifetime is the life of one agent. It ends at a change that the agent makes outside of itself: a request to the runtime
// that changes something, a write of a pod to the API, or an event about a pod.
type lifetime struct {
	left  int  // changes until the end; negative: it does not end
	after bool // the last change takes effect, and its agent does not learn that

	mu    sync.Mutex
	made  []string
	over  bool
	ended chan struct{} // closed at the end
	gone  chan struct{} // closed once what waits for an answer gets one
}

// newLifetime returns a life without end.
func newLifetime() *lifetime {
	return &lifetime{left: -1, ended: make(chan struct{}), gone: make(chan struct{})}
}

// change makes a change, unless the agent's life is over. At its end, the agent gets no answer before it is gone.
func (l *lifetime) change(what string, do func() error) error {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		<-l.gone
		return errKilled
	}
	dies := l.left == 0
	if l.over = dies; dies {
		what += map[bool]string{false: " (not done)", true: " (done)"}[l.after]
	}
	l.made = append(l.made, what)
	l.left--
	l.mu.Unlock()
	if !dies {
		return do()
	}
	if l.after {
		_ = do()
	}
	close(l.ended)
	<-l.gone
	return errKilled
}

// Event implements record.EventRecorder.
func (l *lifetime) Event(of runtime.Object, _, reason, _ string) {
	if ref, ok := of.(*v1.ObjectReference); ok && ref.Kind == "Pod" {
		_ = l.change("event "+reason, func() error { return nil })
	}
}

// Eventf implements record.EventRecorder.
func (l *lifetime) Eventf(o runtime.Object, eventType, reason, format string, args ...any) {
	l.Event(o, eventType, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (l *lifetime) AnnotatedEventf(o runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	l.Event(o, eventType, reason, fmt.Sprintf(format, args...))
}

// mortals are agents of one node, one after another: one that dies, and the next one, which does not. The runtime and the
// API are in memory and survive; the files and cgroups are real.
type mortals struct {
	*testing.T
	api     *fake.Clientset
	runtime *memoryRuntime
	options Options
	first   *lifetime
	sockets string // their directory; the names of sockets must be short

	mu      sync.Mutex
	current *lifetime
	agent   *Agent
	lives   int
	dead    []func()
	stopped chan struct{} // closed once the last agent has returned
	stop    func()
}

func newMortals(t *testing.T) *mortals {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for cgroups")
	}
	dir := t.TempDir()
	parent := fmt.Sprintf("/kindred-mortal-%x", sha256.Sum256([]byte(dir)))[:24]
	m := &mortals{T: t, first: newLifetime(), api: versioned(fake.NewClientset()), runtime: newMemoryRuntime(), options: Options{
		Name: nodeName, RootDir: filepath.Join(dir, "node"), Owner: "owner", CgroupParent: parent,
		IPs: []string{"127.0.0.1"}, ClusterDNS: []string{"10.0.0.10"}, Version: "v1.37.1", Config: config.Default(),
	}}
	m.options.Config.PodLogsDir = filepath.Join(dir, "pod-logs") // other tests have pods with the same names and UIDs
	// Whether the machine's disk is full does not matter here.
	m.options.Config.EvictionHard = map[string]string{}
	m.options.Config.ImageGCHighThresholdPercent = new(int32(100))
	m.api.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if o, err := meta.Accessor(action.(clienttesting.CreateAction).GetObject()); err == nil && o.GetUID() == "" {
			o.SetUID(uuid.NewUUID())
		}
		return false, nil, nil
	})
	m.api.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		d := action.(clienttesting.DeleteAction)
		if p := d.GetDeleteOptions().Preconditions; p != nil && p.UID != nil {
			return m.conflict(d.GetName(), *p.UID)
		}
		return false, nil, nil
	})
	m.api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		var p v1.Pod
		if err := json.Unmarshal(patch.GetPatch(), &p); err != nil {
			return true, nil, err
		}
		return m.conflict(patch.GetName(), p.UID)
	})
	var err error
	if m.sockets, err = os.MkdirTemp("", "cri"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.RemoveAll(m.sockets)
		for _, dir := range cgroupDirs(parent) {
			_ = os.Remove(dir)
		}
	})
	return m
}

// conflict refuses a request for a pod with another UID, as an API does.
func (m *mortals) conflict(name string, uid types.UID) (bool, runtime.Object, error) {
	o, err := m.api.Tracker().Get(podsResource, "default", name)
	if err != nil || o.(*v1.Pod).UID == uid {
		return false, nil, nil
	}
	return true, nil, apierrors.NewConflict(podsResource.GroupResource(), name, errors.New("the UID is another one"))
}

var podsResource = v1.SchemeGroupVersion.WithResource("pods")

// cgroupDirs returns the directories of a cgroup and of those below it, the lowest first.
func cgroupDirs(name string) (dirs []string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*" + name)
	for _, root := range append(roots, "/sys/fs/cgroup"+name) {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append([]string{path}, dirs...)
			}
			return nil
		})
	}
	return dirs
}

// cgroupLimits lists the limits of the cgroups of pods and of their classes.
func (m *mortals) cgroupLimits() string {
	var lines []string
	for _, dir := range cgroupDirs(m.options.CgroupParent) {
		for _, file := range []string{"cpu.cfs_quota_us", "cpu.shares", "memory.limit_in_bytes", "cpu.max", "cpu.weight", "memory.max"} {
			if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				_, name, _ := strings.Cut(dir, m.options.CgroupParent)
				lines = append(lines, fmt.Sprintf("%s/%s %s", name, file, strings.TrimSpace(string(text))))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// start runs agents until stopAll, one after another.
func (m *mortals) start() {
	m.Helper()
	first := m.first
	ctx, cancel := context.WithCancel(context.Background())
	m.stopped, m.stop = make(chan struct{}), cancel
	ready := make(chan struct{})
	go func() {
		defer close(m.stopped)
		for l, ready := first, ready; ctx.Err() == nil; l, ready = newLifetime(), make(chan struct{}) {
			if err := m.run(ctx, l, ready); err != nil {
				m.Error(err)
				return
			}
		}
	}()
	select {
	case <-ready:
	case <-m.stopped:
		m.FailNow()
	case <-time.After(20 * time.Second):
		m.Fatal("the node is not ready after 20 s")
	}
}

// run runs one agent until its end.
func (m *mortals) run(ctx context.Context, l *lifetime, ready chan<- struct{}) error {
	m.mu.Lock()
	m.lives++
	socket := filepath.Join(m.sockets, fmt.Sprint(m.lives))
	m.mu.Unlock()
	server, err := m.runtime.serve(socket, l)
	if err != nil {
		return err
	}
	m.Cleanup(server.Stop)
	o := m.options
	o.Endpoint, o.Client, o.Recorder = "unix://"+socket, m.clientOf(l), l
	agent, err := New(o)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.current, m.agent = l, agent
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = agent.Run(ctx)
	}()
	go func() {
		select {
		case <-agent.Ready():
			close(ready)
		case <-done:
		}
	}()
	bury := func() {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		close(l.gone)
		<-done
		agent.pods.Wait(nil) // without the limit of Run: what got its answer only now still writes files
	}
	select {
	case <-l.ended:
		// What waits for the answer must not go on, as it would write files: it waits until the test ends. The rest of the
		// agent ends now.
		cancel()
		time.Sleep(deathThroes)
		m.dead = append(m.dead, bury)
	case <-ctx.Done():
		bury()
	}
	return nil
}

// deathThroes is the time that a dead agent has to notice that.
const deathThroes = 20 * time.Millisecond

// stopAll stops the agent that runs.
func (m *mortals) stopAll() {
	if m.stop == nil {
		return
	}
	m.stop()
	<-m.stopped
	for _, bury := range m.dead {
		bury()
	}
}

// arm lets the agent that runs die after this number of further changes.
func (m *mortals) arm(left int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current.mu.Lock()
	defer m.current.mu.Unlock()
	m.current.left, m.current.after, m.current.made = left, after, nil
}

// clientOf returns the API's client of one agent.
func (m *mortals) clientOf(l *lifetime) *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(action clienttesting.Action) (_ bool, o runtime.Object, err error) {
		do := func() error {
			o, err = m.api.Invokes(action, nil)
			return err
		}
		verb := action.GetVerb()
		if action.GetResource().Resource != "pods" || verb == "get" || verb == "list" {
			err = do()
			return true, o, err
		}
		err = l.change(verb+" "+action.GetResource().Resource, do)
		return true, o, err
	})
	client.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := m.api.InvokesWatch(action)
		return true, w, err
	})
	return client
}

// bed returns the functions of beds that only use the API.
func (m *mortals) bed() *bed { return &bed{T: m.T, client: m.api, options: m.options} }

// killed runs a story with an agent that dies before its first change, after that, after its second one, and so on, until a
// story ends before that. prepare is what comes before the first change that counts. All stories must have the outcome of
// the one without a death.
func killed(t *testing.T, fewest int, prepare, story func(*mortals), outcome func(*mortals) string) {
	tell := func(left int, after bool) (text string, died bool) {
		t.Run(fmt.Sprintf("change %d, after it %t", left, after), func(t *testing.T) {
			m := newMortals(t)
			first := m.first
			defer m.stopAll()
			prepare(m)
			m.arm(left, after)
			story(m)
			text = outcome(m)
			for _, problem := range m.runtime.found() {
				t.Error(problem)
			}
			first.mu.Lock()
			defer first.mu.Unlock()
			if died = first.over; died {
				t.Logf("killed at %s", first.made[len(first.made)-1])
			} else if left >= 0 && left < fewest {
				t.Errorf("the agent made fewer than %d changes: %q", fewest, first.made)
			}
		})
		return text, died
	}
	want, _ := tell(-1, false)
	check := func(left int, after bool) (died bool) {
		got, died := tell(left, after)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("killed at change %d, after it %t (-want +got):\n%s", left, after, diff)
		}
		return died
	}
	check(0, false)
	for left := 0; !t.Failed() && check(left, true); left++ {
	}
}

func resourcesText(r *v1.ResourceRequirements) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("cpu %s-%s memory %s-%s", r.Requests.Cpu(), r.Limits.Cpu(), r.Requests.Memory(), r.Limits.Memory())
}

// podLine describes the state of a pod without times and names that differ.
func podLine(p *v1.Pod) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s %q %q", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, c := range p.Status.ContainerStatuses {
		fmt.Fprintf(&text, "; %s ready %t restarts %d", c.Name, c.Ready, c.RestartCount)
		fmt.Fprintf(&text, " %s of %s/%s", resourcesText(c.Resources), c.AllocatedResources.Cpu(), c.AllocatedResources.Memory())
	}
	fmt.Fprintf(&text, "; %s of %s/%s", resourcesText(p.Status.Resources), p.Status.AllocatedResources.Cpu(), p.Status.AllocatedResources.Memory())
	for _, c := range p.Status.Conditions {
		fmt.Fprintf(&text, "; %s %s %s", c.Type, c.Status, c.Reason)
	}
	return text.String()
}

// serve serves the runtime to one agent.
func (r *memoryRuntime) serve(socket string, l *lifetime) (*grpc.Server, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
		do := func() error {
			response, err = handle(context.WithoutCancel(ctx), request)
			return err
		}
		name := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
		if !changing[name] {
			err = do()
			return response, err
		}
		err = l.change(name, do)
		return response, err
	}))
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

// changing are the calls that change something.
var changing = map[string]bool{
	"RunPodSandbox": true, "StopPodSandbox": true, "RemovePodSandbox": true, "CreateContainer": true, "StartContainer": true,
	"StopContainer": true, "RemoveContainer": true, "UpdateContainerResources": true, "PullImage": true, "RemoveImage": true,
}
