// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kindred-project/kindred/test/servers"
)

// tour is a section of README.md, whose examples a reader pastes into a shell one after the other.
type tour struct {
	t *testing.T
	// dir is the reader's directory. The program is in bin, as after "make build".
	dir    string
	blocks []string
}

// newTour reads the examples of a section.
func newTour(t *testing.T, heading string) *tour {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	r := &tour{t: t, dir: t.TempDir()}
	for _, part := range strings.Split(section, "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		r.blocks = append(r.blocks, block)
	}
	if err := os.Mkdir(filepath.Join(r.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.link(binary)
	return r
}

// link makes a file available in bin.
func (r *tour) link(file string) {
	r.t.Helper()
	if err := os.Symlink(file, filepath.Join(r.dir, "bin", filepath.Base(file))); err != nil {
		r.t.Fatal(err)
	}
}

// replace changes a part of the examples that the test cannot do as a reader does. It is an error if there is none.
func (r *tour) replace(old, by string) {
	r.t.Helper()
	found := false
	for i, block := range r.blocks {
		found = found || strings.Contains(block, old)
		r.blocks[i] = strings.ReplaceAll(block, old, by)
	}
	if !found {
		r.t.Fatalf("the examples have no %q", old)
	}
}

// run pastes the examples, and fails if a command of theirs does.
func (r *tour) run(limit time.Duration) (out string) {
	r.t.Helper()
	script := `kubectl() { bin/kindred kubectl "$@"; }
failed=0
trap 'echo "FAILED: $BASH_COMMAND"; failed=1' ERR
` + strings.Join(r.blocks, "") + "exit $failed\n"
	file := filepath.Join(r.dir, "pasted.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		r.t.Fatal(err)
	}
	// In a file: examples end processes by what is in their command lines.
	cmd := exec.Command("bash", file)
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := startProcess(cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	select {
	case <-p.done:
	case <-time.After(limit):
		r.t.Fatalf("the examples take longer than %v:\n%s", limit, p.out)
	}
	if !cmd.ProcessState.Success() {
		r.t.Fatalf("the examples fail:\n%s", p.out)
	}
	r.t.Logf("%s", p.out)
	return p.out.String()
}

// TestReadmeOfServers: the examples of several servers work when they are pasted.
func TestReadmeOfServers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	r := newTour(t, "### Several servers")
	r.replace("/var/lib/kindred-machine-", filepath.Join(r.dir, "kindred-machine-"))
	r.replace("on 3 kindred status", "on 3 kindred status || echo status ends with $?")
	t.Cleanup(func() {
		if t.Failed() {
			_ = exec.Command("bash", "-c", `pkill -KILL -f "kindred up .*`+r.dir+`"; for n in 1 2 3; do ip netns delete machine-$n; done; ip link delete lan`).Run()
		}
	})
	out := r.run(4 * time.Minute)
	for _, want := range []string{"3 of 3 members respond", `successfully rolled out`, "lost for", "status ends with 1", "many   10/10"} {
		if !strings.Contains(out, want) {
			t.Errorf("the examples do not print %q:\n%s", want, out)
		}
	}
	if strings.Count(out, "status ends with") != 1 {
		t.Errorf("the first status is not good, or the second one is:\n%s", out)
	}
}

// TestClusterAPIReadme: the examples of Cluster API work when they are pasted. The test builds and starts the management cluster itself.
func TestClusterAPIReadme(t *testing.T) {
	needsClusterAPI(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	host := newHostMachines(t)
	release, err := servers.BuildKindredRelease(t.Context(), root, binary, ownVersion(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	k := newKindredManagementOn(t, host, release)
	r := newTour(t, "### Clusters made by Cluster API")
	r.link(release.Clusterctl)
	if err := os.Symlink(release.Dir, filepath.Join(r.dir, "bin", "cluster-api")); err != nil {
		t.Fatal(err)
	}
	r.replace("make capi-release\n", "")
	r.replace("make up ARGS=\"--cluster-api bin/cluster-api\"\n", "")
	r.replace("make build KUBERNETES_VERSION=v1.38.0 BIN=bin/kindred-next", "make -C "+root+" build KUBERNETES_VERSION=v1.38.0 BIN="+filepath.Join(r.dir, "bin", "kindred-next"))
	r.replace("machine install v1.38.0", "machine install v1.38.0 --machines-dir "+host.dir)
	r.replace("machine list", "machine list --machines-dir "+host.dir)
	r.replace("/var/lib/kindred/kubeconfig", k.cluster.kubeconfig())
	r.replace("/var/lib/kindred-second", filepath.Join(r.dir, "kindred-second"))
	out := r.run(20 * time.Minute)
	for _, want := range []string{"condition met", "v1.38.0", "would be deleted:", `"work" deleted`, "removed the cluster in"} {
		if !strings.Contains(out, want) {
			t.Errorf("the examples do not print %q:\n%s", want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(host.dir, "network.json")); !os.IsNotExist(err) {
		t.Errorf("the reset of the second management cluster, after the last machine, has left the network of machines: %v", err)
	}
}
