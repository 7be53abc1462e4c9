// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindredtest

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Lines that "kindred up" prints once the cluster is ready, in this order.
const (
	readyPrefix      = "ready in "
	kubeconfigPrefix = "export KUBECONFIG="
)

// process is a running "kindred up".
type process struct {
	cmd    *exec.Cmd
	output output
	done   chan struct{}
	// err is the result of the process; valid once done is closed.
	err error
}

// startProcess starts the binary so that it dies with this process.
func startProcess(binary string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.output.kubeconfig = make(chan string, 1)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	dieWithParent(p.cmd)
	started := make(chan error)
	go p.run(started)
	return p, <-started
}

// run starts the process and waits for it on one locked thread. On Linux the parent-death signal
// is bound to the thread that forked, and Go may end any thread that is not locked.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// ready waits until the cluster is ready, and returns the path of its kubeconfig.
func (p *process) ready(limit time.Duration) (string, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case kubeconfig := <-p.output.kubeconfig:
		return kubeconfig, nil
	case <-p.done:
		return "", fmt.Errorf("the process exited: %v", p.err)
	case <-timer.C:
		return "", fmt.Errorf("it was not ready after %v", limit)
	}
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop stops the cluster, and kills the process if that takes longer than the limit.
func (p *process) stop(limit time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the cluster: %w", err)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("the cluster did not stop cleanly: %w", p.err)
		}
		return nil
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("the cluster did not stop within %v and was killed", limit)
	}
}

// output stores the output of the process, and signals when the process has printed that the
// cluster is ready.
type output struct {
	mu         sync.Mutex
	text       bytes.Buffer
	parsed     int
	ready      bool
	kubeconfig chan string
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	for {
		line, _, found := strings.Cut(string(o.text.Bytes()[o.parsed:]), "\n")
		if !found {
			return len(p), nil
		}
		o.parsed += len(line) + 1
		o.parse(line)
	}
}

func (o *output) parse(line string) {
	if strings.HasPrefix(line, readyPrefix) {
		o.ready = true
		return
	}
	if path, ok := strings.CutPrefix(line, kubeconfigPrefix); ok && o.ready {
		select {
		case o.kubeconfig <- path:
		default: // signalled already
		}
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
