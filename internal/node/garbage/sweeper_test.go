// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

func TestLeftover(t *testing.T) {
	files := []string{"0", "1.log", "1.log.20260102-030405", "2.log.20260102-030405.gz", "3.log", "4.log", "notes", "1.txt", "-1.log", "99999999999"}
	for name, test := range map[string]struct{ attempts, want string }{
		"no run":      {"", ""},
		"first run":   {"0", ""},
		"two runs":    {"2 3", "0 1.log 1.log.20260102-030405"},
		"one run":     {"3", "0 1.log 1.log.20260102-030405 2.log.20260102-030405.gz"},
		"a gap":       {"1 3", "0 2.log.20260102-030405.gz"},
		"newer files": {"0 1", ""},
	} {
		var runs []runtime.Container
		for _, field := range strings.Fields(test.attempts) {
			run := runtime.Container{}
			if _, err := fmt.Sscan(field, &run.Attempt); err != nil {
				t.Fatal(err)
			}
			runs = append(runs, run)
		}
		if got := strings.Join(leftover(files, runs), " "); got != test.want {
			t.Errorf("%s: leftover %q, want %q", name, got, test.want)
		}
	}
}

// fakePods is a runtime that has pods, and counts what is done to them.
type fakePods struct {
	cri.RuntimeService
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	fails      error
	// dies is the number of calls after which all calls fail, as if the agent had been killed; 0 for never.
	dies, calls int
}

var errKilled = errors.New("killed")

func (f *fakePods) call() error {
	if f.calls++; f.dies > 0 && f.calls > f.dies {
		return errKilled
	}
	return f.fails
}

func (f *fakePods) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return f.sandboxes, f.fails
}

func (f *fakePods) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return f.containers, nil
}

func (f *fakePods) StopPodSandbox(context.Context, string) error { return f.call() }

func (f *fakePods) RemovePodSandbox(_ context.Context, id string) error {
	if err := f.call(); err != nil {
		return err
	}
	f.sandboxes = slices.DeleteFunc(f.sandboxes, func(s *runtimeapi.PodSandbox) bool { return s.Id == id })
	return nil
}

func (f *fakePods) RemoveContainer(_ context.Context, id string) error {
	if err := f.call(); err != nil {
		return err
	}
	before := len(f.containers)
	f.containers = slices.DeleteFunc(f.containers, func(c *runtimeapi.Container) bool { return c.Id == id })
	if len(f.containers) == before {
		return status.Error(codes.NotFound, id)
	}
	return nil
}

// add adds a pod with runs of a container, of which the last may be running.
func (f *fakePods) add(uid string, running bool, attempts ...int) {
	labels := map[string]string{
		runtime.LabelPodUID: uid, runtime.LabelPodNamespace: "ns", runtime.LabelPodName: "p", runtime.LabelContainerName: "c",
	}
	f.sandboxes = append(f.sandboxes, &runtimeapi.PodSandbox{Id: uid, Labels: labels})
	for i, n := range attempts {
		state := runtimeapi.ContainerState_CONTAINER_EXITED
		if running && i == len(attempts)-1 {
			state = runtimeapi.ContainerState_CONTAINER_RUNNING
		}
		f.containers = append(f.containers, &runtimeapi.Container{
			Id: fmt.Sprint(uid, "-", n), PodSandboxId: uid, Labels: labels, State: state,
			Annotations: map[string]string{runtime.AnnotationRestartCount: fmt.Sprint(n)},
		})
	}
}

// fakeCgroups are pods with cgroups.
type fakeCgroups struct{ pods []types.UID }

func (f *fakeCgroups) Pods() ([]types.UID, error) { return f.pods, nil }

func (f *fakeCgroups) Destroy(uid types.UID) error {
	f.pods = slices.DeleteFunc(slices.Clone(f.pods), func(p types.UID) bool { return p == uid })
	return nil
}

// ground is a sweeper with files.
type ground struct {
	*Sweeper
	*testing.T
	layout  rootdir.Layout
	runtime *fakePods
	cgroups *fakeCgroups
	has     map[types.UID]bool
	over    map[types.UID]bool
	changed []types.UID
	events  []string
}

func newGround(t *testing.T) *ground {
	g := &ground{
		T: t, layout: rootdir.Layout{Root: t.TempDir()}, runtime: &fakePods{}, cgroups: &fakeCgroups{},
		has: map[types.UID]bool{}, over: map[types.UID]bool{},
	}
	orphans := func(_ context.Context, keep func(types.UID) bool) error {
		entries, err := os.ReadDir(g.layout.PodsDir())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			if uid := types.UID(e.Name()); !keep(uid) {
				err = errors.Join(err, os.RemoveAll(g.layout.PodDir(uid)))
			}
		}
		return err
	}
	none := func(context.Context, func(types.UID) bool) error { return nil }
	g.Sweeper = NewSweeper(SweepOptions{
		Layout: g.layout, Runtime: runtime.New(g.runtime, "me", clock.RealClock{}), Cgroups: g.cgroups,
		Claims: none, Resources: none, Volumes: orphans, Clock: clock.RealClock{},
		Has: func(uid types.UID) bool { return g.has[uid] }, Over: func(uid types.UID) bool { return g.over[uid] },
		Changed: func(uid types.UID) { g.changed = append(g.changed, uid) },
		Event:   func(eventType, reason, message string) { g.events = append(g.events, eventType+" "+reason+" "+message) },
	})
	return g
}

// write makes files of a pod: logs and termination logs of a container's runs.
func (g *ground) write(uid types.UID, attempts ...uint32) {
	for _, n := range attempts {
		for _, path := range []string{
			filepath.Join(g.layout.PodLogsDir("ns", "p", uid), g.layout.ContainerLog("c", n)), g.layout.TerminationLog(uid, "c", n),
		} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
				g.Fatal(err)
			}
		}
	}
}

// left checks which files are left.
func (g *ground) left(want ...string) {
	g.Helper()
	var got []string
	err := filepath.WalkDir(g.layout.Root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			path, err = filepath.Rel(g.layout.Root, path)
			got = append(got, path)
		}
		return err
	})
	if err != nil {
		g.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		g.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestSweep(t *testing.T) {
	g := newGround(t)
	g.runtime.add("known", true, 3, 4)
	g.runtime.add("leaving", true, 0) // its orphan has a worker soon
	g.has["known"], g.has["pending"] = true, true
	g.write("known", 2, 3, 4, 5)
	g.write("leaving", 0)
	g.write("pending", 0)
	g.write("orphan", 0, 1)
	g.cgroups.pods = []types.UID{"known", "leaving", "orphan", "pending"}
	if err := g.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.left(
		"logs/ns_p_known/c/3.log", "logs/ns_p_known/c/4.log", "logs/ns_p_known/c/5.log", "logs/ns_p_leaving/c/0.log", "logs/ns_p_pending/c/0.log",
		"pods/known/containers/c/3", "pods/known/containers/c/4", "pods/known/containers/c/5", "pods/leaving/containers/c/0", "pods/pending/containers/c/0",
	)
	if diff := cmp.Diff([]types.UID{"known", "leaving", "pending"}, g.cgroups.pods); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
	if len(g.events) > 0 {
		t.Errorf("events %v", g.events)
	}
}

// TestSweepWithoutRuntime: nothing is removed while it is not known what the runtime has.
func TestSweepWithoutRuntime(t *testing.T) {
	g := newGround(t)
	g.write("orphan", 0)
	g.cgroups.pods = []types.UID{"orphan"}
	g.runtime.fails = errors.New("no runtime")
	for _, sweep := range []func(context.Context) error{g.Sweep, g.Reclaim} {
		if err := sweep(t.Context()); err == nil {
			t.Error("no error without a runtime")
		}
	}
	g.left("logs/ns_p_orphan/c/0.log", "pods/orphan/containers/c/0")
	if len(g.cgroups.pods) != 1 || len(g.events) != 2 || !strings.HasPrefix(g.events[0], "Warning ContainerGCFailed ") {
		t.Errorf("cgroups %v, events %v", g.cgroups.pods, g.events)
	}
}

// TestCgroupOfVolumes: the cgroup of a pod stays while the pod has volumes.
func TestCgroupOfVolumes(t *testing.T) {
	g := newGround(t)
	g.cgroups.pods = []types.UID{"orphan"}
	if err := os.MkdirAll(g.layout.VolumesDir("orphan"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := g.removeCgroups(func(types.UID) bool { return false }); err != nil || len(g.cgroups.pods) != 1 {
		t.Errorf("cgroups %v, %v", g.cgroups.pods, err)
	}
}

func TestReclaimContainers(t *testing.T) {
	g := newGround(t)
	for _, uid := range []types.UID{"over", "running", "alive"} {
		g.has[uid] = true
		g.runtime.add(string(uid), uid == "running", 0, 1)
		g.write(uid, 0, 1)
	}
	g.over["over"], g.over["running"] = true, true // the second one contradicts the runtime
	if err := g.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.left(
		"logs/ns_p_alive/c/0.log", "logs/ns_p_alive/c/1.log", "logs/ns_p_running/c/0.log", "logs/ns_p_running/c/1.log",
		"pods/alive/containers/c/0", "pods/alive/containers/c/1", "pods/over/containers/c/0", "pods/over/containers/c/1",
		"pods/running/containers/c/0", "pods/running/containers/c/1",
	)
	if len(g.runtime.sandboxes) != 2 || len(g.runtime.containers) != 4 || !slices.Equal(g.changed, []types.UID{"over"}) {
		t.Errorf("%d sandboxes, %d containers, changed %v", len(g.runtime.sandboxes), len(g.runtime.containers), g.changed)
	}
}

// TestReclaimKilled: an agent that is killed after any call to the runtime leaves what the next one removes.
func TestReclaimKilled(t *testing.T) {
	for dies := 1; ; dies++ {
		g := newGround(t)
		g.has["over"], g.over["over"] = true, true
		g.runtime.add("over", false, 0, 1)
		g.write("over", 0, 1)
		g.runtime.dies = dies
		err := g.Reclaim(t.Context())
		g.runtime.dies = 0
		if again := g.Reclaim(t.Context()); again != nil {
			t.Errorf("killed after %d calls: %v", dies, again)
		}
		if len(g.runtime.sandboxes)+len(g.runtime.containers) > 0 {
			t.Errorf("killed after %d calls: left %v, %v", dies, g.runtime.sandboxes, g.runtime.containers)
		}
		if err == nil {
			if dies < 4 {
				t.Errorf("not killed after %d calls", dies)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Errorf("killed after %d calls: %v", dies, err)
		}
	}
}
