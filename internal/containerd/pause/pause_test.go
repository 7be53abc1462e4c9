// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The machine code from GNU as for the same instructions, except the jump on amd64, for which it uses the short
// form. It reveals a mistake in an encoder also on a machine of another architecture.
var want = map[string]string{
	"amd64": "bf11000000" + "488d3564000000" + "ba00000000" + "41ba08000000" + "b80d000000" + "0f05" + // rt_sigaction
		"bf00000000" + "488d3566000000" + "ba00000000" + "41ba08000000" + "b80e000000" + "0f05" + // rt_sigprocmask
		"488d3d4d000000" + "be00000000" + "ba00000000" + "41ba08000000" + "b880000000" + "0f05" + "85c0" + "0f88daffffff" + // rt_sigtimedwait
		"bf00000000" + "b8e7000000" + "0f05", // exit_group
	"arm64": "200280d2" + "a1020010" + "020080d2" + "030180d2" + "c81080d2" + "010000d4" + // rt_sigaction
		"000080d2" + "e1020010" + "020080d2" + "030180d2" + "e81080d2" + "010000d4" + // rt_sigprocmask
		"40020010" + "010080d2" + "020080d2" + "030180d2" + "281180d2" + "010000d4" + "40ffffb7" + // rt_sigtimedwait
		"000080d2" + "c80b80d2" + "010000d4", // exit_group
}

func TestBinaryIsElf(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			b, err := Binary(arch)
			if err != nil {
				t.Fatal(err)
			}
			f, err := elf.NewFile(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != machine || f.Type != elf.ET_EXEC {
				t.Errorf("an %s of type %s, want an executable for %s", f.Machine, f.Type, machine)
			}
			load := f.Progs[0]
			if load.Flags&elf.PF_W != 0 || load.Filesz != uint64(len(b)) || f.Entry <= load.Vaddr || f.Entry >= load.Vaddr+load.Memsz {
				t.Errorf("segment %+v with entry %#x does not hold the whole file of %d bytes", load.ProgHeader, f.Entry, len(b))
			}
		})
	}
}

func TestUnknownArchitecture(t *testing.T) {
	if _, err := Binary("z80"); err == nil {
		t.Error("a pause program for the Z80")
	}
}

// start runs the program as the first process of a PID namespace.
func start(t *testing.T) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making a PID namespace needs root")
	}
	b, err := Binary(runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(file, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, "the program waits", func() bool {
		_, state := stat(t, cmd.Process.Pid)
		return state == 'S'
	})
	return cmd
}

func TestExitsOnSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := start(t)
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v, want exit code 0", err)
			}
		})
	}
}

func TestOtherSignalsAreIgnored(t *testing.T) {
	cmd := start(t)
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGCHLD, syscall.SIGSTOP} {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the program is stopped", func() bool {
		_, state := stat(t, cmd.Process.Pid)
		return state == 'T'
	})
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program waits again", func() bool {
		_, state := stat(t, cmd.Process.Pid)
		return state == 'S'
	})
}

// TestReaps orphans a process in the namespace: its parent enters the namespace, starts it and exits. The kernel
// then makes the first process of the namespace its parent.
func TestReaps(t *testing.T) {
	cmd := start(t)
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	orphaned := make(chan error)
	go func() {
		// The thread's new children are in the namespace; the thread ends with
		// the goroutine, because it is never unlocked.
		runtime.LockOSThread()
		if err := unix.Setns(pidfd, unix.CLONE_NEWPID); err != nil {
			orphaned <- err
			return
		}
		orphaned <- exec.Command("/bin/sh", "-c", "sleep 1000 & exit 0").Run()
	}()
	if err := <-orphaned; err != nil {
		t.Fatal(err)
	}
	var orphans []int
	eventually(t, "the program has adopted a child", func() bool {
		orphans = children(t, cmd.Process.Pid)
		return len(orphans) == 1
	})
	if err := syscall.Kill(orphans[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child is reaped", func() bool { return len(children(t, cmd.Process.Pid)) == 0 })
}

// children returns the processes, including zombies, whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		var child int
		if _, err := fmt.Sscan(e.Name(), &child); err != nil {
			continue
		}
		if parent, _ := stat(t, child); parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// stat returns a process's parent and state, or zeros if it does not exist (proc_pid_stat(5)).
func stat(t *testing.T, pid int) (parent int, state byte) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	if _, err := fmt.Sscanf(rest, "%c %d", &state, &parent); err != nil {
		t.Fatal(err)
	}
	return parent, state
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true after 10 s: %s", what)
		}
	}
}

func TestMachineCode(t *testing.T) {
	for arch, code := range want {
		b, err := Binary(arch)
		if err != nil {
			t.Fatal(err)
		}
		const headers = 64 + 2*56
		if got := hex.EncodeToString(b[headers:]); !strings.HasPrefix(got, code) {
			t.Errorf("%s:\n got %s\nwant %s...", arch, got, code)
		}
	}
}
