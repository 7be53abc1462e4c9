// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindredtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shell starts a shell instead of the binary, for tests of the process alone.
func shell(t *testing.T, script string) *process {
	t.Helper()
	p, err := startProcess("/bin/sh", []string{"-c", script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
	return p
}

func TestReadyReadsTheOutput(t *testing.T) {
	p := shell(t, `echo "  store 1 ms"; printf "ready in 7"; sleep 0.1; printf " ms\nexport KUBECONFIG=/d/kubeconfig\n"; exec sleep 60`)
	kubeconfig, err := p.ready(time.Minute)
	if err != nil || kubeconfig != "/d/kubeconfig" {
		t.Errorf("ready() = %q, %v", kubeconfig, err)
	}
}

func TestReadyFailsWhenTheProcessExits(t *testing.T) {
	p := shell(t, `echo "kindred: port 6443 is taken" >&2; exit 1`)
	if _, err := p.ready(time.Minute); err == nil {
		t.Error("ready() succeeded after the process exited")
	}
	if !strings.Contains(p.output.String(), "port 6443 is taken") {
		t.Errorf("its last output is missing: %q", p.output.String())
	}
}

func TestReadyTimesOut(t *testing.T) {
	if _, err := shell(t, "exec sleep 60").ready(10 * time.Millisecond); err == nil {
		t.Error("ready() succeeded without output")
	}
}

func TestStop(t *testing.T) {
	// The trap is set before "ready" is printed, because SIGTERM follows.
	const obeys = `sleep 60 >/dev/null 2>&1 & trap 'kill $!; exit 0' TERM; echo "ready in 1 ms"; echo "export KUBECONFIG=/k"; wait`
	p := shell(t, obeys)
	if _, err := p.ready(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(time.Minute); err != nil {
		t.Errorf("a process that obeys: %v", err)
	}
	const ignores = `trap '' TERM; echo "ready in 1 ms"; echo "export KUBECONFIG=/k"; exec sleep 60`
	p = shell(t, ignores)
	if _, err := p.ready(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(10 * time.Millisecond); err == nil || !p.exited() {
		t.Errorf("a process that ignores TERM: error %v, exited %v; want an error, and its end", err, p.exited())
	}
}

// TestDiesWithParent starts a process that starts a child, kills the process, and waits until the
// child has ended.
func TestDiesWithParent(t *testing.T) {
	if os.Getenv("KINDREDTEST_PARENT") != "" {
		p, err := startProcess("/bin/sleep", []string{"60"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child %d\n", p.cmd.Process.Pid)
		<-p.done
		return
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestDiesWithParent$", "-test.v")
	parent.Env = append(os.Environ(), "KINDREDTEST_PARENT=1")
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	child := childOf(t, bufio.NewScanner(stdout))
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for deadline := time.Now().Add(time.Minute); alive(child); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlived its parent", child)
		}
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func childOf(t *testing.T, lines *bufio.Scanner) int {
	t.Helper()
	for lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "child "); ok {
			pid, err := strconv.Atoi(after)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("the parent printed no child process")
	return 0
}

func TestFindBinary(t *testing.T) {
	program := func(path string) string {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	root, elsewhere := t.TempDir(), t.TempDir()
	named, fromEnv, onPath := program(elsewhere+"/named"), program(elsewhere+"/env"), program(elsewhere+"/path/kindred")
	built := program(root + "/bin/kindred")
	if err := os.WriteFile(root+"/go.mod", []byte("module "+repositoryModule+"\n\ngo 1.26.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	inside := root + "/a/b"
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what, option, env, path, dir, want string
	}{
		{"the option wins", named, fromEnv, filepath.Dir(onPath), inside, named},
		{"then the environment", "", fromEnv, filepath.Dir(onPath), inside, fromEnv},
		{"then the repository", "", "", filepath.Dir(onPath), inside, built},
		{"then PATH", "", "", filepath.Dir(onPath), elsewhere, onPath},
		{"the option must exist", elsewhere + "/none", fromEnv, filepath.Dir(onPath), inside, ""},
		{"the environment's binary must exist", "", elsewhere + "/none", filepath.Dir(onPath), inside, ""},
		{"nowhere", "", "", "", elsewhere, ""},
	} {
		t.Setenv(binaryVariable, test.env)
		t.Setenv("PATH", test.path)
		got, err := findBinary(test.option, test.dir)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: found %q, error %v; want %q", test.what, got, err, test.want)
		}
	}
	t.Setenv(binaryVariable, "")
	t.Setenv("PATH", "")
	if _, err := findBinary("", elsewhere); !errors.Is(err, errNoBinary) {
		t.Errorf("nowhere: %v", err)
	}
}

func TestUserArgumentsComeLast(t *testing.T) {
	s := newSettings([]Option{SimulatedNodes(3), Args("--secure-port", "7443")})
	got := strings.Join(s.command("/d"), " ")
	const want = "up --data-dir /d --secure-port 0 --no-node --simulated-nodes 3 --secure-port 7443"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
