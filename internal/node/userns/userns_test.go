// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/rootdir"
)

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		host Range
		size int64
		want string
	}{
		{defaultRange(Unit), Unit, ""},
		{defaultRange(3 * Unit), 3 * Unit, ""},
		{Range{Unit, 110 * Unit}, Unit, ""},
		{Range{Unit + 1, 110 * Unit}, Unit, "kubelet user assigned ID 65537 is not a multiple of 65536"},
		{Range{0, 110 * Unit}, Unit, "kubelet user assigned ID 0 must be greater or equal to 65536"},
		{Range{Unit, 110*Unit + 1}, Unit, "kubelet user assigned IDs length 7208961 is not a multiple of 65536"},
		{Range{Unit, 109 * Unit}, Unit, "kubelet user assigned IDs are not enough to support 110 pods"},
		{Range{idSpace - 100*Unit, 110 * Unit}, Unit, "kubelet user assigned IDs end at 4295622656, and must be less than 4294967296"},
	} {
		got := ""
		if err := test.host.check(test.size, 110); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: %q, want %q", test.host, got, test.want)
		}
	}
}

func TestParseSubIDs(t *testing.T) {
	got, err := parseSubIDs("0: kubelet 65536 7208960\n")
	if want := (Range{65536, 7208960}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, output := range []string{"", "0: kubelet 65536", "0: kubelet x 65536", "0: kubelet 65536 4294967296", "0: kubelet 1 2\n1: kubelet 3 4"} {
		if r, err := parseSubIDs(output); err == nil {
			t.Errorf("%q: got %+v, want an error", output, r)
		}
	}
}

func supported(string) (bool, error) { return true, nil }

func managerIn(t *testing.T, dir string, host Range, size int64) *Manager {
	t.Helper()
	m, err := newIn(host, Options{Layout: rootdir.Layout{Root: dir}, IDsPerPod: size, MaxPods: 1, Supports: supported})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Whatever pods come and go, and however often the agent ends and its configuration changes: no two pods share an ID, a
// pod keeps its range, and a range in the host's own IDs is never given away.
func TestRangesAreDisjoint(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	host := Range{6 * Unit, 60 * Unit}
	m := managerIn(t, dir, host, Unit)
	held := map[types.UID]Range{}
	for step := range 2000 {
		uid := types.UID(fmt.Sprint(random.IntN(15)))
		switch random.IntN(6) {
		case 0:
			m = managerIn(t, dir, host, []int64{Unit, 2 * Unit, 3 * Unit}[random.IntN(3)])
		case 1, 2:
			if err := m.Release(uid); err != nil {
				t.Fatal(err)
			}
			delete(held, uid)
		default:
			ns, err := m.For(uid, "")
			if err != nil {
				t.Fatal(err)
			}
			got := Range{int64(ns.Uids[0].HostId), int64(ns.Uids[0].Length)}
			if before, ok := held[uid]; ok && before != got {
				t.Fatalf("step %d: pod %s has %+v, and had %+v", step, uid, got, before)
			}
			held[uid] = got
			if got.First < host.First || got.end() > host.end() {
				t.Fatalf("step %d: %+v is outside of %+v", step, got, host)
			}
			for other, r := range held {
				if other != uid && r.overlaps(got) {
					t.Fatalf("step %d: pod %s has %+v, and pod %s has %+v", step, uid, got, other, r)
				}
			}
		}
	}
}

// What an agent leaves that is killed in the middle of an allocation or a release: the next one gives the pod its range, or a
// new one, no other pod has an ID of it, and all ranges are free once the pods are gone.
func TestKilled(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, m *Manager, l rootdir.Layout){
		"before": func(*testing.T, *Manager, rootdir.Layout) {},
		"the directory of the pod": func(t *testing.T, _ *Manager, l rootdir.Layout) {
			must(t, os.MkdirAll(l.PodDir("p"), 0o750))
		},
		"a part of a new file": func(t *testing.T, _ *Manager, l rootdir.Layout) {
			must(t, os.MkdirAll(l.PodDir("p"), 0o750))
			for _, suffix := range []string{".new", ".tmp", "~"} {
				must(t, os.WriteFile(l.UserNamespaceFile("p")+suffix, []byte(`{"uidMap`), 0o600))
			}
		},
		"a file, and no sandbox": func(t *testing.T, m *Manager, _ rootdir.Layout) {
			_, err := m.For("p", "")
			must(t, err)
		},
		"no file any more": func(t *testing.T, m *Manager, l rootdir.Layout) {
			_, err := m.For("p", "")
			must(t, err)
			must(t, os.Remove(l.UserNamespaceFile("p")))
		},
		"no directory any more": func(t *testing.T, m *Manager, l rootdir.Layout) {
			_, err := m.For("p", "")
			must(t, err)
			must(t, os.RemoveAll(l.PodDir("p")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			layout, host := rootdir.Layout{Root: t.TempDir()}, Range{Unit, 3 * Unit}
			m := managerIn(t, layout.Root, host, Unit)
			_, err := m.For("other", "")
			must(t, err)
			leave(t, m, layout)
			before := m.used["p"]
			_, stored := os.Stat(layout.UserNamespaceFile("p"))

			m = managerIn(t, layout.Root, host, Unit)
			for _, uid := range []types.UID{"third", "p"} {
				_, err := m.For(uid, "")
				must(t, err)
			}
			if stored == nil && m.used["p"] != before {
				t.Errorf("the pod has %+v, and had %+v", m.used["p"], before)
			}
			all := []Range{m.used["other"], m.used["third"], m.used["p"]}
			for i, a := range all {
				for _, b := range all[:i] {
					if a.overlaps(b) {
						t.Errorf("%+v overlaps %+v", a, b)
					}
				}
			}
			// Three pods fit: if a range had leaked, these would not.
			must(t, m.ReleaseOrphans(func(types.UID) bool { return false }))
			m = managerIn(t, layout.Root, host, Unit)
			for _, uid := range []types.UID{"a", "b", "c"} {
				_, err := m.For(uid, "")
				must(t, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestExhausted(t *testing.T) {
	m := managerIn(t, t.TempDir(), Range{Unit, 2 * Unit}, Unit)
	for _, uid := range []types.UID{"a", "b"} {
		if _, err := m.For(uid, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.For("c", ""); err == nil || !strings.Contains(err.Error(), "could not find an empty slot") {
		t.Errorf("error %v", err)
	}
	if err := m.ReleaseOrphans(func(uid types.UID) bool { return uid == "b" }); err != nil {
		t.Fatal(err)
	}
	if ns, err := m.For("c", ""); err != nil || ns.Uids[0].HostId != Unit {
		t.Errorf("after the release of another: %v, %v", ns, err)
	}
}

func TestHandlers(t *testing.T) {
	unknown := errors.New(`the handler "odd" is not known`)
	m := managerIn(t, t.TempDir(), defaultRange(Unit), Unit)
	m.options.Supports = func(handler string) (bool, error) {
		if handler == "odd" {
			return false, unknown
		}
		return handler == "good", nil
	}
	for handler, want := range map[string]string{
		"":     "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
		"old":  "can't set `spec.hostUsers: false`, RuntimeClass handler \"old\" does not support user namespaces",
		"odd":  "can't set `spec.hostUsers: false`, RuntimeClass handler \"odd\" does not support user namespaces: the handler \"odd\" is not known",
		"good": "",
	} {
		got := ""
		if _, err := m.For(types.UID("pod-"+handler), handler); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("handler %q: %q, want %q", handler, got, want)
		}
	}
}

// A file that does not say which IDs a pod has stops the agent: another pod could get them.
func TestDamagedFiles(t *testing.T) {
	for _, content := range []string{
		"", "{}", `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`,
		`{"uidMappings":[{"hostId":65536,"containerId":1,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":1,"length":65536}]}`,
		`{"uidMappings":[{"hostId":65536,"length":65536}],"gidMappings":[{"hostId":131072,"length":65536}]}`,
	} {
		layout := rootdir.Layout{Root: t.TempDir()}
		if err := os.MkdirAll(layout.PodDir("p"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(layout.UserNamespaceFile("p"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := newIn(defaultRange(Unit), Options{Layout: layout, IDsPerPod: Unit, Supports: supported})
		if err == nil || !strings.Contains(err.Error(), "the user namespace of pod p is unknown") {
			t.Errorf("%q: error %v", content, err)
		}
	}
}
