// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kindred-project/kindred/internal/durable"
)

const (
	loginName  = "org.freedesktop.login1"
	loginPath  = dbus.ObjectPath("/org/freedesktop/login1")
	loginIface = "org.freedesktop.login1.Manager"
	// dropIn has upstream's name, so that a kubelet that replaces Kindred replaces it.
	dropIn = "etc/systemd/logind.conf.d/99-kubelet.conf"
)

// logind implements Logind with D-Bus; see org.freedesktop.login1(5).
type logind struct {
	bus  *dbus.Conn
	root string // of the file system
}

// Connect connects to the logind of this machine.
func Connect() (Logind, error) {
	bus, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	return logind{bus, "/"}, nil
}

func (l logind) manager() dbus.BusObject { return l.bus.Object(loginName, loginPath) }

func (l logind) Close() error { return l.bus.Close() }

func (l logind) InhibitDelay() (time.Duration, error) {
	var microseconds uint64
	if err := l.manager().StoreProperty(loginIface+".InhibitDelayMaxUSec", &microseconds); err != nil {
		return 0, fmt.Errorf("read logind's InhibitDelayMaxUSec: %w", err)
	}
	return time.Duration(microseconds) * time.Microsecond, nil
}

func (l logind) SetInhibitDelay(delay time.Duration) error {
	file := filepath.Join(l.root, dropIn)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# Written by Kindred for the graceful shutdown of its node.\n[Login]\nInhibitDelayMaxSec=%.0f\n", delay.Seconds())
	if err := durable.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	systemd := l.bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	call := systemd.Call("org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", int32(syscall.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("have logind read its configuration: %w", call.Err)
	}
	return nil
}

func (l logind) Inhibit() (io.Closer, error) {
	var fd dbus.UnixFD
	call := l.manager().Call(loginIface+".Inhibit", 0, "shutdown", "kindred", "Pods need time to end", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("inhibit shutdowns: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

func (l logind) Shutdowns() (imminent bool, changes <-chan bool, err error) {
	err = l.bus.AddMatchSignal(dbus.WithMatchInterface(loginIface), dbus.WithMatchMember("PrepareForShutdown"), dbus.WithMatchObjectPath(loginPath))
	if err != nil {
		return false, nil, fmt.Errorf("watch for shutdowns: %w", err)
	}
	signals := make(chan *dbus.Signal, 16)
	l.bus.Signal(signals)
	if err := l.manager().StoreProperty(loginIface+".PreparingForShutdown", &imminent); err != nil {
		return false, nil, fmt.Errorf("read logind's PreparingForShutdown: %w", err)
	}
	shutdowns := make(chan bool, 16)
	go func() {
		defer close(shutdowns)
		for signal := range signals {
			if len(signal.Body) == 0 {
				continue
			}
			if imminent, ok := signal.Body[0].(bool); ok {
				shutdowns <- imminent
			}
		}
	}()
	return imminent, shutdowns, nil
}
