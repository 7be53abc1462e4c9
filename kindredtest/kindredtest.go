// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindredtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startLimit is the time that a start may take; on an idle machine it is a second.
	startLimit = time.Minute
	// stopLimit is the time that a stop may take before the process is killed.
	stopLimit = 10 * time.Second
	// logTail is how much of the log of a failed test's cluster is shown, in bytes.
	logTail = 16 << 10
)

// Cluster is a cluster that is stopped at the end of the test.
type Cluster struct {
	config     *rest.Config
	kubeconfig string
}

// Config returns a client configuration with all permissions and no QPS limit. The caller may
// change it.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig with all permissions, for kubectl and other
// programs.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Start runs a cluster until t and its subtests are complete. It returns when API, controllers,
// scheduler and a node are ready, and fails the test if they do not become ready.
func Start(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("kindredtest: %v", err)
	}
	s := newSettings(options)
	binary, err := findBinary(s.binary, dir)
	if err != nil {
		t.Fatalf("kindredtest: %v", err)
	}
	dataDir := filepath.Join(t.TempDir(), "kindred")
	p, err := startProcess(binary, s.command(dataDir))
	if err != nil {
		t.Fatalf("kindredtest: start %s: %v", binary, err)
	}
	// Runs before the cleanup of TempDir, which was registered earlier.
	t.Cleanup(func() { end(t, p, dataDir) })
	kubeconfig, err := p.ready(startLimit)
	if err != nil {
		t.Fatalf("kindredtest: the cluster did not start: %v", err)
	}
	config, err := clientConfig(kubeconfig)
	if err != nil {
		t.Fatalf("kindredtest: read the cluster's kubeconfig: %v", err)
	}
	return &Cluster{config: config, kubeconfig: kubeconfig}
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// Priority and fairness protect the server.
	config.QPS = -1
	return config, nil
}

// end stops the cluster and, if the test failed, logs its output.
func end(t testing.TB, p *process, dataDir string) {
	if p.exited() {
		t.Errorf("kindredtest: the cluster ended before the test: %v", p.err)
	} else if err := p.stop(stopLimit); err != nil {
		t.Errorf("kindredtest: %v", err)
	}
	if !t.Failed() {
		return
	}
	t.Logf("kindredtest: the cluster printed:\n%s", p.output.String())
	t.Logf("kindredtest: the cluster logged:\n%s", tail(filepath.Join(dataDir, "logs", "kindred.log")))
}

// tail returns the end of a file.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	if over := len(content) - logTail; over > 0 {
		return "...\n" + string(content[over:])
	}
	return string(content)
}
