// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kindred-project/kindred/test/images"
)

const busybox = "docker.io/library/busybox:test"

// machine is a running virtual machine.
type machine struct {
	image   image
	dir     string // with its disks, console and kubeconfig
	bin     string // the binary on this host
	ssh     string // the port of its SSH server, on this host
	api     string // the port of its cluster's API, on this host
	console string
}

// boot boots the machine. Its disk is thrown away at the end of the test.
func boot(t *testing.T, i image, bin string) *machine {
	t.Helper()
	m := &machine{image: i, dir: t.TempDir(), bin: bin, ssh: freePort(t), api: freePort(t)}
	m.console = filepath.Join(m.dir, "console")
	tools := m.tools(t)
	cmd := exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2560", "-smp", "2",
		"-kernel", i.kernel, "-initrd", i.initrd,
		"-append", "root=/dev/vda rw rootflags=prjquota console=ttyS0 apparmor=1 security=apparmor psi=1",
		"-drive", "file="+i.root+",if=virtio,format=raw,snapshot=on,cache=unsafe",
		"-drive", "file="+tools+",if=virtio,format=raw,readonly=on",
		"-netdev", "user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:"+m.ssh+"-:22", "-device", "virtio-net-pci,netdev=n",
		"-device", "virtio-rng-pci", "-display", "none", "-monitor", "none", "-serial", "file:"+m.console)
	// The machine ends with the test, even if that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "TMPDIR="+m.dir)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			console, _ := os.ReadFile(m.console)
			t.Logf("QEMU: %s\nconsole: %s", &output, console[max(0, len(console)-4000):])
		}
	})
	m.awaitSSH(t)
	m.forwardAPI(t)
	return m
}

// tools returns a disk with the binary and an image of containers.
func (m *machine) tools(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(m.dir, "tools")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := images.Busybox(filepath.Join(dir, "busybox.tar"), busybox); err != nil {
		t.Fatal(err)
	}
	if err := run("/", "cp", m.bin, filepath.Join(dir, "kindred")); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(m.dir, "tools.img")
	if err := makeDisk(disk, dir, 512<<20); err != nil {
		t.Fatal(err)
	}
	return disk
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// control is the socket of the connection that commands share: the handshake of another one takes seconds.
func (m *machine) control() string { return filepath.Join(m.dir, "ssh") }

// client returns an SSH client with more arguments.
func (m *machine) client(ctx context.Context, args ...string) *exec.Cmd {
	options := []string{
		"-q", "-i", m.image.key, "-p", m.ssh, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=10", "-o", "ControlPath=" + m.control(), "root@127.0.0.1",
	}
	return exec.CommandContext(ctx, "ssh", append(options, args...)...)
}

// shell runs a command line in the machine and returns its output. It returns an error if the command fails.
func (m *machine) shell(ctx context.Context, script string) (string, error) {
	cmd := m.client(ctx, "sh", "-e")
	cmd.Stdin = strings.NewReader(script)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("in the machine: %s: %w\n%s%s", script, err, &out, &errOut)
	}
	return strings.TrimSpace(out.String()), nil
}

// sh is shell, with a failure as the test's.
func (m *machine) sh(t *testing.T, script string) string {
	t.Helper()
	out, err := m.shell(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (m *machine) awaitSSH(t *testing.T) {
	t.Helper()
	await(t, "the machine's SSH server", func() error {
		_, err := m.shell(t.Context(), "systemctl is-system-running --wait || true")
		return err
	})
}

// forwardAPI keeps the API's port forwarded, also after a reboot, by a connection that commands share.
func (m *machine) forwardAPI(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = os.Remove(m.control())
			_ = m.client(ctx, "-N", "-o", "ControlMaster=yes", "-L", "127.0.0.1:"+m.api+":127.0.0.1:6443").Run()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// await waits for a condition. The machine is slow, and the limit is for what does not happen.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	const limit, pause = 8 * time.Minute, 2 * time.Second
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still not after %v: %v", what, limit, err)
		}
		time.Sleep(pause)
	}
}
