// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred/test/servers"
)

// cluster is a running "kindred up" on a new directory.
type cluster struct {
	bench   *bench
	cmd     *exec.Cmd
	dataDir string
	config  *rest.Config
	// startTook is the time from the start of the process to its "ready" line.
	startTook time.Duration
	pprof     string
	printed   chan struct{}
	// resetFlags are flags of "kindred reset" when the cluster is removed.
	resetFlags []string
}

// Arguments of up.
var (
	simulatedNode = []string{"--no-node", "--simulated-nodes", "1"}
	realNode      = []string{"--node-name", "bench"}
)

// start starts a cluster and waits until it is ready.
func (b *bench) start(ctx context.Context, args ...string) (*cluster, error) {
	dir, err := os.MkdirTemp(b.scratch, "d")
	if err != nil {
		return nil, err
	}
	c := &cluster{bench: b, dataDir: dir, printed: make(chan struct{})}
	args, err = servers.OnAnyDisk(filepath.Join(b.scratch, "kubelet-config.yaml"), append([]string{"up", "--data-dir", dir, "--secure-port", "0"}, args...))
	if err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, b.binary, args...)
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.Stderr = os.Stderr
	if b.isProfiled() {
		if c.pprof, err = servers.FreeAddress(); err != nil {
			return nil, err
		}
		c.cmd.Env = append(os.Environ(), "KINDRED_PPROF="+c.pprof)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.awaitReady(stdout, began); err != nil {
		c.stop()
		return nil, err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", dir+"/kubeconfig"); err != nil {
		c.stop()
		return nil, err
	}
	c.config.QPS = -1
	c.config.ContentType = runtime.ContentTypeProtobuf
	c.config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c, nil
}

func (c *cluster) awaitReady(stdout io.Reader, began time.Time) error {
	var printed bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(stdout, &printed))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready in ") {
			c.startTook = time.Since(began)
			go func() {
				_, _ = io.Copy(io.Discard, stdout)
				close(c.printed)
			}()
			return nil
		}
	}
	close(c.printed)
	return fmt.Errorf("the cluster did not start; it printed:\n%s", printed.String())
}

// stop stops the cluster and removes everything that it left, including containers.
func (c *cluster) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	<-c.printed
	_ = c.cmd.Wait()
	if out, err := c.run(append([]string{"reset"}, c.resetFlags...)...); err != nil {
		fmt.Fprintf(os.Stderr, "bench: remove the cluster: %v: %s\n", err, out)
	}
}

// run runs another verb on this cluster.
func (c *cluster) run(args ...string) (string, error) {
	cmd := exec.Command(c.bench.binary, append(args, "--data-dir", c.dataDir)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// client returns a client with its own connection.
func (c *cluster) client() (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(withOwnConnection(c.config))
}

// withOwnConnection returns a configuration whose client shares no connection. client-go shares
// transports between equal configurations, and a dialer makes a configuration unequal.
func withOwnConnection(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext
	config.WarningHandlerWithContext = rest.NoWarnings{} // thousands of equal pods get the same warnings
	return config
}

// rss returns the resident memory of the process, in MB.
func (c *cluster) rss() (float64, error) { return c.memory("VmRSS:") }

// memory returns a line of the process's status, in MB.
func (c *cluster) memory(line string) (float64, error) { return memoryOf(c.cmd.Process.Pid, line) }

// residentMemory returns the sum of the resident memory of processes, in MB.
func residentMemory(pids ...int) (sum float64, err error) {
	for _, pid := range pids {
		of, err := memoryOf(pid, "VmRSS:")
		if err != nil {
			return 0, err
		}
		sum += of
	}
	return sum, nil
}

// memoryOf returns a line of the status of a process (proc_pid_status(5)), in MB.
func memoryOf(pid int, line string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), line)
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0, fmt.Errorf("no %s in the status of process %d", line, pid)
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib * 1024 / 1e6, err
}

// processorTime returns the CPU time that the process has used so far.
func (c *cluster) processorTime() time.Duration { return servers.ProcessorTime(c.cmd.Process.Pid) }
