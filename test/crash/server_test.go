// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred/test/servers"
)

// boundedEnd is the time that a process may run without its disk.
const boundedEnd = 10 * time.Second

// server is a process of "kindred up" with simulated nodes.
type server struct {
	cmd   *exec.Cmd
	dir   string
	out   servers.Output
	began time.Time
	ended chan struct{}
}

// serve starts a cluster in dir.
func serve(t *testing.T, dir string) *server {
	t.Helper()
	s := &server{dir: dir, ended: make(chan struct{}), began: time.Now()}
	s.cmd = exec.Command(damageBinary(t), "up", "--data-dir", dir, "--secure-port", "0", "--no-node", "--simulated-nodes", "2")
	s.cmd.Env = append(os.Environ(), "KUBECONFIG=")
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(s.kill)
	return s
}

// kill sends SIGKILL.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// syncing is longer than an fsync in progress takes.
const syncing = 200 * time.Millisecond

// pause stops the process while no fsync is in progress: an fsync that is overtaken by ext4's shutdown
// may return success without having written, which real power loss cannot cause.
func (s *server) pause(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(syncing)
}

// proceed resumes a paused process.
func (s *server) proceed(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// ready waits until the cluster is ready and returns how long that took. A process that exceeds the
// limit is ended, with its goroutine stacks in the error.
func (s *server) ready() (time.Duration, error) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for time.Since(s.began) < *within {
		if strings.Contains(s.out.String(), "\nready in ") {
			return time.Since(s.began), nil
		}
		select {
		case <-s.ended:
			return 0, fmt.Errorf("the process ended before it was ready: %v\n%s", s.cmd.ProcessState, &s.out)
		case <-ticker.C:
		}
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.ended
	log, _ := os.ReadFile(filepath.Join(s.dir, "logs", "kindred.log"))
	used := s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
	return 0, fmt.Errorf("not ready after %v, in which it had %v of processor time:\n%s\n%s", *within, used, &s.out, log[max(0, len(log)-5000):])
}

func (s *server) mustBeReady(t *testing.T) time.Duration {
	t.Helper()
	took, err := s.ready()
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// endsByItself checks that a process without a disk ends in time, and with which message.
func (s *server) endsByItself() error {
	select {
	case <-s.ended:
	case <-time.After(boundedEnd):
		return fmt.Errorf("the process lived on for %v without its disk:\n%s", boundedEnd, &s.out)
	}
	if text := s.out.String(); strings.Contains(text, "goroutine ") {
		return fmt.Errorf("the process ended in a stack trace:\n%s", text)
	}
	if s.cmd.ProcessState.ExitCode() == 0 {
		return errors.New("the process lost its disk and ended with status 0")
	}
	return nil
}

// client returns an administrator's client whose requests time out before the test does.
func (s *server) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.Timeout = *within
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
