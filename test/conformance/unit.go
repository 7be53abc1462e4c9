// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kindred-project/kindred/test/servers"
)

// unitName is the name of the agent's systemd unit, as the suite of node agents looks for it.
const unitName = "kubelet-kindred"

// systemctl is the name under which this program stands in for systemctl; sockets is the environment variable with the path of
// the socket at which it reaches the runner.
const (
	systemctl = "systemctl"
	sockets   = "CONFORMANCE_UNIT"
)

// unit is the agent of a cluster, which the suite stops and starts as if it were a unit of systemd. The agent is a part of the
// cluster's process: while the unit is stopped, a process without an agent serves the API.
type unit struct {
	kindred servers.Kindred
	agent   []string // the agent's flags
	dir     string
	http    http.Server

	mu      sync.Mutex
	running bool
	server  *servers.Server
}

// start starts the agent unless it runs.
func (u *unit) start(ctx context.Context) error {
	u.mu.Lock()
	running := u.running
	u.mu.Unlock()
	if running {
		return nil
	}
	return u.restart(ctx)
}

// restart starts the agent, and ends it first if it runs.
func (u *unit) restart(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.run(ctx, u.agent)
	u.running = err == nil
	return err
}

// stop ends the agent. Its containers keep running.
func (u *unit) stop(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.running {
		return nil
	}
	u.running = false
	return u.run(ctx, []string{"--no-node"})
}

// run replaces the process. The port of the API stays the same.
func (u *unit) run(ctx context.Context, flags []string) error {
	if u.server != nil {
		u.server.Stop()
	}
	k := u.kindred
	k.Args = slices.Concat(k.Args, flags)
	started, err := k.Start(ctx, u.dir)
	if err != nil {
		return err
	}
	if u.server == nil {
		host := started.Config.Host
		u.kindred.Args = append(u.kindred.Args, "--secure-port", host[strings.LastIndex(host, ":")+1:])
		u.server = started
	} else {
		*u.server = *started
	}
	return nil
}

// list returns the unit in a line, as systemctl lists units.
func (u *unit) list() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.running {
		return fmt.Sprintf("%s.service loaded inactive dead Kindred\n", unitName)
	}
	return fmt.Sprintf("%s.service loaded active running Kindred\n", unitName)
}

// serve serves the programs that stand in for systemctl and sudo, and writes them.
func (u *unit) serve() error {
	listener, err := net.Listen("unix", filepath.Join(u.dir, "unit.sock"))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /list-units", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, u.list()) })
	// The request ends with its client, the process does not.
	handle := func(command string, act func(context.Context) error) {
		mux.HandleFunc("POST /"+command, func(w http.ResponseWriter, r *http.Request) {
			if err := act(context.WithoutCancel(r.Context())); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	handle("reset-failed", func(context.Context) error { return nil })
	handle("kill", u.stop)
	handle("stop", u.stop)
	handle("start", u.start)
	handle("restart", u.restart)
	u.http.Handler = mux
	go func() { _ = u.http.Serve(listener) }()

	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := u.bin()
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(self, filepath.Join(bin, systemctl)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755)
}

func (u *unit) bin() string { return filepath.Join(u.dir, "bin") }

// env is the environment of a suite that uses these programs.
func (u *unit) env() []string {
	return []string{
		"PATH=" + u.bin() + string(os.PathListSeparator) + os.Getenv("PATH"),
		sockets + "=" + filepath.Join(u.dir, "unit.sock"),
	}
}

func (u *unit) close() { _ = u.http.Close() }

// actAsSystemctl passes the arguments of systemctl on to the runner.
func actAsSystemctl(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command")
	}
	client := http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", os.Getenv(sockets))
		},
	}}
	method := http.MethodPost
	if args[0] == "list-units" {
		method = http.MethodGet
	}
	request, err := http.NewRequest(method, "http://unit/"+args[0], nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", systemctl, strings.Join(args, " "), text)
	}
	_, err = os.Stdout.Write(text)
	return err
}
