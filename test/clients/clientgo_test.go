// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kindred-project/kindred/kindredtest"
)

// example builds one of client-go's examples.
func example(t *testing.T, name string) string {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join("bin", name))
	if err != nil {
		t.Fatal(err)
	}
	goTool(t, ".", nil, "build", "-o", binary, "k8s.io/client-go/examples/"+name)
	return binary
}

// TestClientGoDeployments runs the two examples that create, update, list and delete a Deployment,
// and wait for a key between the steps.
func TestClientGoDeployments(t *testing.T) {
	cluster := kindredtest.Start(t)
	for _, name := range []string{"create-update-delete-deployment", "dynamic-create-update-delete-deployment"} {
		t.Run(name, func(t *testing.T) {
			program := newUser(t, cluster, example(t, name))
			out := program.input(strings.Repeat("\n", 8), "--kubeconfig", cluster.Kubeconfig())
			for _, said := range []string{"Created deployment", "Updated deployment", "demo-deployment (1 replicas)", "Deleted deployment"} {
				if !strings.Contains(out, said) {
					t.Errorf("%q is not in\n%s", said, out)
				}
			}
		})
	}
}

// TestClientGoLoops runs the examples that run until they are stopped.
func TestClientGoLoops(t *testing.T) {
	cluster := kindredtest.Start(t)
	kubeconfig := []string{"--kubeconfig", cluster.Kubeconfig()}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"out-of-cluster-client-configuration": {kubeconfig, "There are 0 pods in the cluster\n.*not found"},
		"workqueue":                           {kubeconfig, "Starting Pod controller"},
		"leader-election":                     {append(kubeconfig, "--lease-lock-name=lock", "--lease-lock-namespace=default", "--id=one"), "(?s)Controller loop.*|successfully acquired lease"},
	} {
		t.Run(name, func(t *testing.T) {
			says := regexp.MustCompile(c.says)
			if out := runUntil(t, says, example(t, name), c.args...); !says.MatchString(out) {
				t.Errorf("%q is not in\n%s", c.says, out)
			}
		})
	}
}

// runUntil runs a program until it prints a text, for at most half a minute.
func runUntil(t *testing.T, says *regexp.Regexp, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out := &watched{says: says, said: cancel}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	_ = cmd.Run() // stopped by the test: only its output counts
	return out.String()
}

// watched signals when its content contains a text.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	says *regexp.Regexp
	said func()
}

var _ io.Writer = (*watched)(nil)

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.text.Write(p)
	if w.says.Match(w.text.Bytes()) {
		w.said()
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
