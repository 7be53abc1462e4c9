// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/kindredtest"
)

// build compiles a client with the module file of its directory. The result is kept there, and
// rebuilt only when something has changed.
func build(t *testing.T, folder, program string) string {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join("bin", folder))
	if err != nil {
		t.Fatal(err)
	}
	goTool(t, folder, nil, "build", "-o", binary, program)
	return binary
}

// goTool runs the go command in a directory and returns its output.
func goTool(t *testing.T, folder string, environment []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), environment...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, tail(out), tail(failure.Bytes()))
	}
	return strings.TrimSpace(string(out))
}

// tail returns the end of a long output, which has the failure.
func tail(out []byte) []byte { return out[max(0, len(out)-8<<10):] }

// user runs commands of one program on one cluster.
type user struct {
	*testing.T
	program string
	env     []string
}

func newUser(t *testing.T, cluster *kindredtest.Cluster, program string) *user {
	t.Helper()
	return &user{t, program, append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG="+cluster.Kubeconfig())}
}

// types runs a command that must succeed, and returns its output.
func (u *user) types(args ...string) string {
	u.Helper()
	return u.input("", args...)
}

// input is types for a command that reads its standard input.
func (u *user) input(stdin string, args ...string) string {
	u.Helper()
	cmd := exec.Command(u.program, args...)
	cmd.Env, cmd.Stdin = u.env, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.Fatalf("%s %s: %v\n%s", filepath.Base(u.program), strings.Join(args, " "), err, tail(out))
	}
	return string(out)
}

// prints runs a command and checks that its output contains a text.
func (u *user) prints(want string, args ...string) {
	u.Helper()
	if got := u.types(args...); !strings.Contains(got, want) {
		u.Errorf("%s %s\n got %q\nwant %q in it", filepath.Base(u.program), strings.Join(args, " "), got, want)
	}
}
