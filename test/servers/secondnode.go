// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// SecondNode is a second node of a Kindred cluster: a process with a containerd of its own, in a network namespace that
// is connected with this machine as another machine would be.
type SecondNode struct {
	// Kindred is the program of the cluster.
	Kindred string
	// Env is added to the environment of this process.
	Env []string

	dir     string
	machine *machine
	process *process
}

// The name of the node, and its number as a machine. They are fixed, because there is one at a time.
const (
	secondName   = "kindred-second"
	secondNumber = 100
)

// HostAddress returns the address of this machine that both nodes reach. The cluster's API must listen on it.
func (*SecondNode) HostAddress() netip.Addr { return hostAddress() }

// Data returns the node's data directory.
func (n *SecondNode) Data() string { return filepath.Join(n.dir, "data") }

// Connect creates the namespace and its link to this machine, which further machines share.
func (n *SecondNode) Connect() (err error) {
	if err := connectMachines(); err != nil {
		return errors.Join(err, disconnectMachines())
	}
	if n.machine, err = newMachine(secondName, secondNumber); err != nil {
		return errors.Join(err, disconnectMachines())
	}
	return nil
}

// Start joins the node to a running cluster, with its files in dir, and returns when it is ready.
func (n *SecondNode) Start(ctx context.Context, cluster *Server, dir string) (err error) {
	n.dir = dir
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	line, err := exec.CommandContext(ctx, n.Kindred, "token", "create", "--data-dir", cluster.Data).Output()
	if err != nil {
		return fmt.Errorf("kindred token create: %w", err)
	}
	args := append(strings.Fields(string(line))[1:], "--data-dir", n.Data(), "--node-name", secondName)
	if args, err = OnAnyDisk(filepath.Join(dir, "kubelet-config.yaml"), args); err != nil {
		return err
	}
	err = n.machine.within(func() error {
		n.process, err = launch("second node", filepath.Join(dir, "second-node.log"), n.Env, n.Kindred, args...)
		return err
	})
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		return err
	}
	return n.process.await(ctx, func(ctx context.Context) error {
		if _, err := os.Stat(filepath.Join(n.Data(), "kindred.json")); err != nil {
			return err // written when it has joined
		}
		return nodeReady(ctx, client, secondName)
	})
}

// CheckRunning returns an error if the process has ended.
func (n *SecondNode) CheckRunning() error { return n.process.checkRunning() }

// Stop stops the node and removes everything that it left on the machine, except its log.
func (n *SecondNode) Stop(ctx context.Context) error {
	if n.process != nil {
		n.process.stop()
	}
	var failed []error
	if _, err := os.Stat(n.Data()); err == nil {
		failed = append(failed, n.machine.within(func() error { return n.verb(ctx, "reset") }))
	}
	return errors.Join(append(failed, n.machine.remove(), disconnectMachines())...)
}

// Load adds the images of archives to the node.
func (n *SecondNode) Load(ctx context.Context, archives []string) error {
	return n.verb(ctx, append([]string{"image", "load"}, archives...)...)
}

// verb runs a verb of Kindred with the node's data directory.
func (n *SecondNode) verb(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, n.Kindred, append(args, "--data-dir", n.Data())...)
	cmd.Env = append(os.Environ(), n.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kindred %v: %w: %s", args, err, out)
	}
	return nil
}
