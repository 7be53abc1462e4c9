// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// Member is a further server of a Kindred cluster with embedded etcds: a process in a network namespace that is connected with
// this machine as another machine would be. It runs no pods.
type Member struct {
	// Number is 2 for the second server.
	Number int
	// Kindred is the program of the cluster.
	Kindred string

	dir     string
	machine *machine
	process *process
}

func (m *Member) name() string { return fmt.Sprintf("kindred-%d", m.Number) }

// Data returns the server's data directory.
func (m *Member) Data() string { return filepath.Join(m.dir, "data") }

// Start makes the server a member of a running cluster, with its files in dir, and returns when it is ready.
func (m *Member) Start(ctx context.Context, cluster *Server, dir string) (err error) {
	m.dir = dir
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Stop())
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if m.machine, err = newMachine(m.name(), m.Number); err != nil {
		return err
	}
	line, err := exec.CommandContext(ctx, m.Kindred, "token", "create", "--server", "--data-dir", cluster.Data).Output()
	if err != nil {
		return fmt.Errorf("kindred token create --server: %w", err)
	}
	at, err := url.Parse(cluster.Config.Host)
	if err != nil {
		return err
	}
	args := append(strings.Fields(string(line))[1:], "--no-node", "--data-dir", m.Data(), "--secure-port", at.Port(),
		"--service-cidr", serviceCIDR)
	err = m.machine.within(func() error {
		m.process, err = launch(m.name(), filepath.Join(dir, "kindred.log"), nil, m.Kindred, args...)
		return err
	})
	if err != nil {
		return err
	}
	ready := &Server{Name: m.name()}
	ready.connect(m.config(cluster, at.Port()))
	return m.process.await(ctx, ready.checkReady)
}

// config returns the configuration of a client of this server.
func (m *Member) config(cluster *Server, port string) *rest.Config {
	config := rest.CopyConfig(cluster.Config)
	config.Host = m.URL(port)
	return config
}

// URL returns the address of the server.
func (m *Member) URL(port string) string {
	return "https://" + net.JoinHostPort(machineAddress(m.Number).String(), port)
}

// CheckRunning returns an error if the process has ended.
func (m *Member) CheckRunning() error { return m.process.checkRunning() }

// Stop stops the server, and removes its network. Its files stay.
func (m *Member) Stop() error {
	if m.process != nil {
		m.process.stop()
	}
	return m.machine.remove()
}
