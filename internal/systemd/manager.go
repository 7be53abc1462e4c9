// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kindred-project/kindred/internal/durable"
)

// Name is the name of the unit.
const Name = "kindred.service"

// Manager installs and removes the unit.
type Manager struct {
	// Root is the root of the file system; "/" but in tests.
	Root string
	// Control runs systemctl with these arguments and returns its output.
	Control func(ctx context.Context, args ...string) (string, error)
}

// NewManager returns the manager of this machine. It fails if the machine was not booted with systemd.
func NewManager() (*Manager, error) {
	m := &Manager{Root: "/", Control: control}
	return m, m.check()
}

// check reports whether systemd is the machine's service manager, as sd_booted(3) does.
func (m *Manager) check() error {
	if _, err := os.Stat(filepath.Join(m.Root, "run/systemd/system")); err != nil {
		return errors.New("this machine was not booted with systemd, so that there is nothing to install a service in; " +
			"have its own service manager run \"kindred up\"")
	}
	return nil
}

// control runs systemctl.
func control(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// File returns the path of the unit file.
func (m *Manager) File() string { return filepath.Join(m.Root, "etc/systemd/system", Name) }

// Install writes the unit and enables it, so that it is started at boot. It reports whether the unit has changed.
func (m *Manager) Install(ctx context.Context, unit Unit) (changed bool, err error) {
	text, err := m.read()
	if err != nil {
		return false, err
	}
	if changed = text != unit.Text(); changed {
		if err := durable.WriteFile(m.File(), []byte(unit.Text()), 0o644); err != nil {
			return false, fmt.Errorf("write the unit: %w", err)
		}
	}
	// A run that was interrupted after it wrote the file is made up for.
	if err := m.run(ctx, "daemon-reload"); err != nil {
		return changed, err
	}
	return changed, m.run(ctx, "enable", Name)
}

// Start starts the service, or restarts it if its unit has changed, and returns when the cluster is ready.
func (m *Manager) Start(ctx context.Context, changed bool) error {
	verb := "start"
	if changed {
		verb = "restart"
	}
	if err := m.run(ctx, verb, Name); err != nil {
		return fmt.Errorf("%w; see \"journalctl -u kindred\"", err)
	}
	return nil
}

// Uninstall stops the service and removes its unit. It reports whether there was one.
func (m *Manager) Uninstall(ctx context.Context) (found bool, err error) {
	text, err := m.read()
	if err != nil || text == "" {
		return false, err
	}
	if err := m.run(ctx, "disable", "--now", Name); err != nil {
		return true, err
	}
	if err := os.Remove(m.File()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fmt.Errorf("remove the unit: %w", err)
	}
	if err := m.run(ctx, "daemon-reload"); err != nil {
		return true, err
	}
	// It fails if systemd has forgotten the unit already.
	_ = m.run(ctx, "reset-failed", Name)
	return true, nil
}

// PID returns the process of the service, or 0 if it does not run.
func (m *Manager) PID(ctx context.Context) (int, error) {
	out, err := m.Control(ctx, "show", "--property=MainPID", "--value", Name)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(out)
	if err != nil {
		return 0, fmt.Errorf("systemctl show: MainPID is %q", out)
	}
	return pid, nil
}

// read returns the unit file, or "" if there is none. A unit of another author is an error.
func (m *Manager) read() (string, error) {
	text, err := os.ReadFile(m.File())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the unit: %w", err)
	}
	if !strings.HasPrefix(string(text), marker+"\n") {
		return "", fmt.Errorf("%s was not written by \"kindred install\"; remove it first", m.File())
	}
	return string(text), nil
}

func (m *Manager) run(ctx context.Context, args ...string) error {
	_, err := m.Control(ctx, args...)
	return err
}
