// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/deviceplugin/plugintest"
)

const name = "example.com/device"

func healthy(id string) *api.Device   { return &api.Device{ID: id, Health: api.Healthy} }
func unhealthy(id string) *api.Device { return &api.Device{ID: id, Health: api.Unhealthy} }

// bed is a Manager that runs, and a plugin of its directory.
type bed struct {
	*Manager
	t       *testing.T
	clock   *testingclock.FakeClock
	plugin  *plugintest.Plugin
	changed chan string
	cancel  func()
}

func newBed(t *testing.T, dir string) *bed {
	t.Helper()
	b := &bed{t: t, clock: testingclock.NewFakeClock(time.Now()), changed: make(chan string, 100)}
	b.plugin = &plugintest.Plugin{Dir: dir, Resource: name, Options: &api.DevicePluginOptions{PreStartRequired: true}}
	var err error
	b.Manager, err = New(Options{Dir: dir, Nodes: 3, Clock: b.clock, Changed: func(resource string, ids []string) {
		b.changed <- fmt.Sprint(resource, " ", ids)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	b.cancel = func() {
		cancel()
		<-done
	}
	t.Cleanup(b.cancel)
	for { // the agent removes sockets that are there earlier
		if _, err := os.Stat(filepath.Join(dir, "kubelet.sock")); err == nil {
			return b
		}
		time.Sleep(time.Millisecond)
	}
}

// shortDir returns a directory with a path that a socket can have.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (b *bed) serve(devices ...*api.Device) (stop func()) {
	b.t.Helper()
	stop, err := b.plugin.Serve(devices...)
	if err == nil {
		err = b.plugin.Register(b.t.Context())
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) sees(want string) {
	b.t.Helper()
	select {
	case got := <-b.changed:
		if got != name+" "+want {
			b.t.Fatalf("changed %s, want %s", got, want)
		}
	case <-time.After(time.Minute):
		b.t.Fatalf("no change, want %s", want)
	}
}

func (b *bed) counts(capacity, allocatable int) {
	b.t.Helper()
	if got, want := b.Counts()[name], (Count{capacity, allocatable}); got != want {
		b.t.Errorf("devices %+v, want %+v", got, want)
	}
}

// TestPlugin: the node has the devices of a plugin, their health, and for five minutes those of one that is gone.
func TestPlugin(t *testing.T) {
	b := newBed(t, shortDir(t))
	stop := b.serve(healthy("a"), healthy("b"))
	b.sees("[a b]")
	b.counts(2, 2)
	b.plugin.Set(healthy("a"), unhealthy("b"), healthy("c"))
	b.sees("[b c]")
	b.counts(3, 2)

	ids, response, err := b.Allocate(t.Context(), Request{Resource: name, Count: 2})
	if err != nil || fmt.Sprint(ids) != "[a c]" || response.Envs["DEVICES"] != "[a c]" {
		t.Errorf("allocated %v, %v, %v", ids, response, err)
	}
	if err := b.PreStart(t.Context(), name, ids); err != nil {
		t.Error(err)
	}
	b.plugin.Fail(errors.New("broken"))
	if _, _, err := b.Allocate(t.Context(), Request{Resource: name, Count: 1}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Error(err)
	}
	if err := b.PreStart(t.Context(), name, ids); err == nil || !strings.Contains(err.Error(), "device plugin PreStartContainer rpc failed with err") {
		t.Error(err)
	}
	if diff := cmp.Diff([][]string{{"a", "c"}, {"a", "c"}}, b.plugin.Started()); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}

	stop()
	b.sees("[a c]")
	b.counts(3, 0)
	if _, _, err := b.Allocate(t.Context(), Request{Resource: name, Count: 1}); err == nil || err.Error() != "no healthy devices present; cannot allocate unhealthy devices "+name {
		t.Error(err)
	}
	b.clock.Step(stopGrace + time.Second)
	b.counts(0, 0)
	b.serve(healthy("a"))
	b.sees("[a b c]")
	b.counts(1, 1)
}

// An allocation ends when its plugin does not answer, and when the plugin ends. Its devices can be allocated after that.
func TestAllocationEnds(t *testing.T) {
	for title, test := range map[string]struct {
		limit time.Duration
		dies  bool
		want  string
	}{
		"no answer":       {50 * time.Millisecond, false, "DeadlineExceeded"},
		"the plugin ends": {time.Hour, true, "Unavailable"},
	} {
		t.Run(title, func(t *testing.T) {
			b := newBed(t, shortDir(t))
			stop := b.serve(healthy("a"))
			b.sees("[a]")
			b.Manager.plugin(name).limit = test.limit
			hanging := b.plugin.Hang()
			failed := make(chan error)
			go func() {
				_, _, err := b.Allocate(t.Context(), Request{Resource: name, Count: 1})
				failed <- err
			}()
			<-hanging
			if test.dies {
				stop()
				b.sees("[a]")
				b.counts(1, 0)
			}
			if err := <-failed; err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
			b.plugin = &plugintest.Plugin{Dir: b.options.Dir, Resource: name}
			if !test.dies {
				stop()
				b.sees("[a]")
			}
			b.serve(healthy("a"))
			b.sees("[a]")
			if ids, _, err := b.Allocate(t.Context(), Request{Resource: name, Count: 1}); err != nil || fmt.Sprint(ids) != "[a]" {
				t.Errorf("afterwards: %v, %v", ids, err)
			}
		})
	}
}

// TestNewAgent: the next agent removes the sockets, knows the resource, and has no devices of it until the plugin
// registers again.
func TestNewAgent(t *testing.T) {
	dir := shortDir(t)
	b := newBed(t, dir)
	b.serve(healthy("a"))
	b.sees("[a]")
	b.cancel()
	next := newBed(t, dir)
	if !next.Has(name) || next.Has("example.com/other") {
		t.Error("the resource is not known, or another one is")
	}
	next.counts(0, 0)
	next.serve(healthy("a"))
	next.sees("[a]")
	next.counts(1, 1)
}

// A plugin that registers again at the same socket replaces the earlier one.
func TestReplaced(t *testing.T) {
	b := newBed(t, shortDir(t))
	b.serve(healthy("a"))
	b.sees("[a]")
	if err := b.plugin.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.sees("[]")
	b.plugin.Set(healthy("a"), healthy("b"))
	for b.Counts()[name].Allocatable != 2 {
		<-b.changed
	}
}

func TestRegisterErrors(t *testing.T) {
	b := newBed(t, shortDir(t))
	for resource, want := range map[string]string{
		"cpu":                `the ResourceName "cpu" is invalid`,
		"kubernetes.io/x":    `the ResourceName "kubernetes.io/x" is invalid`,
		"requests.example/x": `the ResourceName "requests.example/x" is invalid`,
		"example.com/a b":    `the ResourceName "example.com/a b" is invalid`,
	} {
		b.plugin.Resource = resource
		if err := b.plugin.Register(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", resource, err)
		}
	}
	if err := b.Validate(name, "", []string{"v1"}); err == nil || err.Error() != "manager version, v1beta1, is not among plugin supported versions [v1]" {
		t.Error(err)
	}
	if err := b.Validate("cpu", "", []string{"v1beta1"}); err == nil {
		t.Error("cpu is accepted")
	}
	r := &registration{manager: b.Manager}
	if _, err := r.Register(t.Context(), &api.RegisterRequest{Version: "v2", ResourceName: name}); err == nil || !strings.Contains(err.Error(), `requested API version "v2" is not supported by kubelet`) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(b.options.Dir, "resources.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(b.options); err == nil {
		t.Error("a damaged file is accepted")
	}
}

// A driver of the type DevicePlugin registers through the registry of drivers.
func TestDriver(t *testing.T) {
	b := newBed(t, shortDir(t))
	stop, err := b.plugin.Serve(healthy("a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	socket := filepath.Join(b.options.Dir, "plugin.sock")
	if err := b.Register(t.Context(), name, socket, nil); err != nil {
		t.Fatal(err)
	}
	b.sees("[a]")
	b.Deregister(t.Context(), name, socket)
	b.sees("[a]")
	b.counts(1, 0)
}

func TestChoose(t *testing.T) {
	devices := map[string]Device{
		"a": {"a", true, 1}, "b": {"b", true, 2}, "c": {"c", true, 2}, "d": {"d", false, 2}, "e": {"e", true, 0},
	}
	for _, test := range []struct {
		name    string
		r       Request
		prefers []string
		want    string
	}{
		{"lowest", Request{Count: 2}, nil, "[a b]"},
		{"preferred", Request{Count: 2}, []string{"c", "e"}, "[c e]"},
		{"unhealthy preferred", Request{Count: 1}, []string{"d"}, "[a]"},
		{"near", Request{Count: 1, Nodes: 2}, []string{"a"}, "[b]"},
		{"near and preferred", Request{Count: 1, Nodes: 2}, []string{"c"}, "[c]"},
		{"near first", Request{Count: 3, Nodes: 2}, nil, "[a b c]"},
		{"far before those without a node", Request{Count: 2, Nodes: 2, Used: sets.New("b")}, nil, "[a c]"},
		{"reused", Request{Count: 2, Used: sets.New("a"), Reusable: sets.New("c")}, nil, "[b c]"},
		{"all reused", Request{Count: 1, Reusable: sets.New("b", "c")}, nil, "[b]"},
		{"too many", Request{Count: 4, Used: sets.New("a")}, nil, "requested number of devices unavailable for r. Requested: 4, Available: 3"},
	} {
		test.r.Resource = "r"
		ids, err := choose(test.r, devices, func([]string, []string, int) ([]string, error) { return test.prefers, nil })
		got := fmt.Sprint(ids)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	failed := errors.New("failed")
	if _, err := choose(Request{Count: 1}, devices, func([]string, []string, int) ([]string, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}

func TestHints(t *testing.T) {
	devices := map[string]Device{"a": {"a", true, 1}, "b": {"b", true, 2}, "c": {"c", true, 2}, "d": {"d", false, 2}}
	for _, test := range []struct {
		r    Request
		want string
	}{
		{Request{Count: 1}, "[{[0 1] false} {[1] true} {[0] true}]"},
		{Request{Count: 2}, "[{[0 1] false} {[1] true}]"},
		{Request{Count: 3}, "[{[0 1] false}]"},
		{Request{Count: 4}, "[]"},
		{Request{Count: 1, Reusable: sets.New("a"), Used: sets.New("b")}, "[{[0 1] false} {[0] true}]"},
	} {
		if got := fmt.Sprint(hints(test.r, devices, 3)); got != test.want {
			t.Errorf("%d: %s, want %s", test.r.Count, got, test.want)
		}
	}
	if got := hints(Request{Count: 1}, map[string]Device{"a": {"a", true, 0}}, 3); got != nil {
		t.Errorf("devices without a node: %v", got)
	}
}
