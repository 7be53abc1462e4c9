// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package hostclient

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
)

// program answers as "kindred machine" does.
const program = `#!/bin/sh
case "$4" in
list) echo '[{"name":"a","address":"10.192.0.2/16","phase":"Running","args":["up"],"pid":7}]' ;;
apply) grep -q '"name":"b"' && echo '{"name":"b","phase":"Running"}' ;;
delete) echo "Error: machine $5: busy" >&2; exit 1 ;;
esac
`

func newHost(t *testing.T) (*Host, string) {
	t.Helper()
	own := filepath.Join(t.TempDir(), "kindred")
	if err := os.WriteFile(own, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	h := &Host{Root: filepath.Join(t.TempDir(), "machines"), Clock: testingclock.NewFakeClock(time.Now())}
	if err := h.Install(own, "v1.37.1"); err != nil {
		t.Fatal(err)
	}
	return h, own
}

func TestCommands(t *testing.T) {
	h, _ := newHost(t)
	m, found, err := h.Get(t.Context(), "a")
	if diff := cmp.Diff(Machine{Name: "a", Address: "10.192.0.2/16", Phase: Running}, m); diff != "" || !found || err != nil {
		t.Errorf("machine a: %v, %v\n%s", found, err, diff)
	}
	if _, found, err := h.Get(t.Context(), "c"); found || err != nil {
		t.Errorf("machine c: %v, %v", found, err)
	}
	if m, err := h.Apply(t.Context(), Spec{Name: "b"}); err != nil || m.Name != "b" {
		t.Errorf("machine b: %+v, %v", m, err)
	}
	if err := h.Delete(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "machine a: busy") {
		t.Errorf("the error is %v, and not what the program says", err)
	}
}

// TestList: a list is used for a second, and no longer than until a change.
func TestList(t *testing.T) {
	h, _ := newHost(t)
	now := testingclock.NewFakeClock(time.Now())
	h.Clock = now
	lists := filepath.Join(t.TempDir(), "lists")
	count := "#!/bin/sh\ncase \"$4\" in list) echo x >> " + lists + "; echo '[]' ;; apply) echo '{}' ;; esac\n"
	if err := os.WriteFile(h.Program, []byte(count), 0o755); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, want int) {
		t.Helper()
		if _, _, err := h.Get(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(lists)
		if got := strings.Count(string(written), "x"); got != want || err != nil {
			t.Errorf("%s: %d lists, %v, want %d", what, got, err, want)
		}
	}
	expect("the first", 1)
	now.Step(listPeriod - 1)
	expect("within the second", 1)
	now.Step(1)
	expect("after it", 2)
	if _, err := h.Apply(t.Context(), Spec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	expect("after Apply", 3)
	if err := h.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	expect("after Delete", 4)
}

// TestInstalledAgain: the program of the host is removed, as by "kindred reset" of another cluster, and comes back.
func TestInstalledAgain(t *testing.T) {
	h, _ := newHost(t)
	if err := os.RemoveAll(h.Root); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	path, found, err := h.ProgramOf("v1.37.1")
	if err != nil || !found || path != h.Program {
		t.Errorf("the program is at %s, %v, %v", path, found, err)
	}
}

// TestNewerBuild: a manager with another build of the same version replaces the program of the host.
func TestNewerBuild(t *testing.T) {
	h, own := newHost(t)
	if err := os.WriteFile(own, []byte("#!/bin/sh\necho '[]'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	next := &Host{Root: h.Root, Clock: h.Clock}
	if err := next.Install(own, "v1.37.1"); err != nil {
		t.Fatal(err)
	}
	if _, found, err := next.Get(t.Context(), "a"); found || err != nil {
		t.Errorf("the host has the first build: %v, %v", found, err)
	}
}

func TestVersions(t *testing.T) {
	h, own := newHost(t)
	for _, version := range []string{"v1.38.0", "../v1.37.1", "1.37.1", ""} {
		if path, found, err := h.ProgramOf(version); found || err != nil {
			t.Errorf("version %q: %s, %v, %v", version, path, found, err)
		}
	}
	if err := (&Host{Root: h.Root}).Install(own, "v1.38.0"); err != nil {
		t.Fatal(err)
	}
	versions, err := h.Versions()
	if diff := cmp.Diff([]string{"v1.37.1", "v1.38.0"}, versions); diff != "" || err != nil {
		t.Errorf("versions: %v\n%s", err, diff)
	}
}
