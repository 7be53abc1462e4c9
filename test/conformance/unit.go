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

// unit is the process of a cluster, which the suite stops and starts as if it were a unit of systemd.
type unit struct {
	kindred servers.Kindred
	dir     string
	http    http.Server

	mu      sync.Mutex
	running bool
	server  *servers.Server
}

// start starts the process. The port of the API stays the same.
func (u *unit) start(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running {
		return nil
	}
	started, err := u.kindred.Start(ctx, u.dir)
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
	u.running = true
	return nil
}

// stop ends the process. Its containers keep running.
func (u *unit) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running {
		u.server.Stop()
		u.running = false
	}
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
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) { u.stop() })
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { u.stop() })
	mux.HandleFunc("POST /reset-failed", func(http.ResponseWriter, *http.Request) {})
	begin := func(w http.ResponseWriter, r *http.Request) {
		// The request ends with its client, the process does not.
		if err := u.start(context.WithoutCancel(r.Context())); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
	mux.HandleFunc("POST /start", begin)
	mux.HandleFunc("POST /restart", func(w http.ResponseWriter, r *http.Request) {
		u.stop()
		begin(w, r)
	})
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
