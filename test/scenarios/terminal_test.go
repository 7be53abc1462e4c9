// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a command on a pseudoterminal.
type terminal struct {
	*process
	keyboard io.Writer
}

// onTerminal starts a command on a terminal with 40 lines and 120 columns.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	main, secondary, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(main.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = secondary, secondary, secondary
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p, err := startProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	secondary.Close()
	// Reading fails with EIO when the other side is closed.
	go func() { _, _ = io.Copy(p.out, main) }()
	t.Cleanup(func() {
		p.end()
		main.Close()
	})
	return &terminal{p, main}
}

// openTerminal opens both sides of a new pseudo terminal (pty(7)).
func openTerminal() (main, secondary *os.File, err error) {
	if main, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(main.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(main.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		secondary, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		main.Close()
	}
	return main, secondary, err
}

// types sends a line, as a user would.
func (c *terminal) types(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.keyboard, line+"\n"); err != nil {
		t.Fatal(err)
	}
}
