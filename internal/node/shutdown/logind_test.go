// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"golang.org/x/sys/unix"
)

// fakeLogin is logind on a private bus, and the part of systemd that sends signals to it.
type fakeLogin struct {
	lock   int // a file descriptor
	killed chan string
}

func (f *fakeLogin) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || mode != "delay" || who == "" || why == "" {
		return 0, dbus.MakeFailedError(os.ErrInvalid)
	}
	return dbus.UnixFD(f.lock), nil
}

func (f *fakeLogin) KillUnit(unit, who string, signal int32) *dbus.Error {
	f.killed <- unit
	return nil
}

// privateBus starts a bus and returns its address.
func privateBus(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon: ", err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--session", "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

func connect(t *testing.T, address string) *dbus.Conn {
	t.Helper()
	bus, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}

func TestLogind(t *testing.T) {
	address := privateBus(t)
	server := connect(t, address)
	// The lock is one end of a pipe. It is released when the other end is at its end.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	fake := &fakeLogin{lock: pipe[1], killed: make(chan string, 1)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(server.Export(fake, loginPath, loginIface))
	must(server.Export(fake, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"))
	_, err := prop.Export(server, loginPath, prop.Map{loginIface: {
		"InhibitDelayMaxUSec": {Value: uint64(5_000_000)}, "PreparingForShutdown": {Value: true},
	}})
	must(err)
	for _, name := range []string{loginName, "org.freedesktop.systemd1"} {
		_, err = server.RequestName(name, dbus.NameFlagDoNotQueue)
		must(err)
	}

	login := logind{connect(t, address), t.TempDir()}
	if delay, err := login.InhibitDelay(); err != nil || delay != 5*time.Second {
		t.Errorf("delay %v, %v", delay, err)
	}
	must(login.SetInhibitDelay(42 * time.Second))
	text, err := os.ReadFile(filepath.Join(login.root, dropIn))
	if err != nil || !strings.HasSuffix(string(text), "[Login]\nInhibitDelayMaxSec=42\n") {
		t.Errorf("drop-in %q, %v", text, err)
	}
	if unit := <-fake.killed; unit != "systemd-logind.service" {
		t.Errorf("%s was reloaded", unit)
	}

	lock, err := login.Inhibit()
	must(err)
	must(unix.Close(pipe[1]))
	released := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(uintptr(pipe[0]), "lock"))
		close(released)
	}()
	imminent, shutdowns, err := login.Shutdowns()
	must(err)
	if !imminent {
		t.Error("a shutdown that was announced before is not seen")
	}
	for _, want := range []bool{false, true} {
		must(server.Emit(loginPath, loginIface+".PrepareForShutdown", want))
		if got := <-shutdowns; got != want {
			t.Errorf("got %t, want %t", got, want)
		}
	}
	select {
	case <-released:
		t.Error("the lock was released early")
	default:
	}
	must(lock.Close())
	<-released
	must(login.Close())
	if _, open := <-shutdowns; open {
		t.Error("the channel is open after the connection was closed")
	}
}
