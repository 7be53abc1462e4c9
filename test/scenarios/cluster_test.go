// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred/test/servers"
)

const (
	// startLimit is the time that a cluster may take to be ready on a busy machine.
	startLimit = 90 * time.Second
	// stopLimit is the documented limit of a clean stop.
	stopLimit = 2 * time.Second
)

// cluster is a data directory and, while it runs, the process of "kindred up".
type cluster struct {
	dir  string
	home string // for kubectl, whose cache is keyed by the port, which clusters reuse, and for configuration
	args []string
	// under is the command line that starts "kindred up", such as env with variables; usually none.
	under []string
	// build is another build of kindred than the tested one, if it is set.
	build string
	up    *process
}

// process is a running command.
type process struct {
	cmd  *exec.Cmd
	out  *servers.Output
	done chan struct{} // closed when the process has ended
}

func newCluster() (*cluster, error) { return newClusterIn("") }

// newClusterIn returns a cluster below a directory; "" is the default for temporary files.
func newClusterIn(parent string) (*cluster, error) {
	root, err := os.MkdirTemp(parent, "kindred-scenario-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: filepath.Join(root, "data"), home: filepath.Join(root, "home")}
	return c, os.Mkdir(c.home, 0o700)
}

// ownCluster starts a cluster for one scenario.
func ownCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	return ownClusterUnder(t, nil, args...)
}

// ownClusterUnder is ownCluster, with a command that starts "kindred up".
func ownClusterUnder(t *testing.T, under []string, args ...string) *cluster {
	t.Helper()
	c := stoppedCluster(t, "")
	c.under = under
	c.mustStart(t, args...)
	return c
}

// stoppedCluster is a cluster for one scenario that has not been started.
func stoppedCluster(t *testing.T, parent string) *cluster {
	t.Helper()
	c, err := newClusterIn(parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.logs())
		}
		if err := c.remove(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// ownClusterWithNode starts a cluster with a real node for one scenario.
func ownClusterWithNode(t *testing.T, args ...string) *cluster {
	t.Helper()
	needContainers(t)
	c := ownCluster(t, args...)
	if err := c.loadImages(); err != nil {
		t.Fatal(err)
	}
	return c
}

// command returns a kindred command line for this cluster.
func (c *cluster) command(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(c.build, binary), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=", "HOME="+c.home)
	return cmd
}

// run runs a verb of kindred until it ends.
func (c *cluster) run(verb ...string) result {
	return runCommand(c.command(append(verb, "--data-dir", c.dir)...), "")
}

// start runs "kindred up" and waits until it prints that it is ready.
func (c *cluster) start(args ...string) error {
	c.args = args
	flags := []string{"up", "--data-dir", c.dir, "--secure-port", "0"}
	if userRuntime != "" && !slices.Contains(args, "--no-node") {
		flags = append(flags, "--container-runtime-endpoint", userRuntime)
	}
	flags, err := servers.OnAnyDisk(filepath.Join(c.home, "kubelet-config.yaml"), append(flags, args...))
	if err != nil {
		return err
	}
	up := c.command(flags...)
	if len(c.under) > 0 {
		under := exec.Command(c.under[0], append(c.under[1:], up.Args...)...)
		under.Env = up.Env
		up = under
	}
	p, err := startProcess(up)
	if err != nil {
		return err
	}
	c.up = p
	deadline := time.After(startLimit)
	for !strings.Contains(p.out.String(), "ready in ") {
		select {
		case <-p.done:
			return fmt.Errorf("kindred up ended: %v\n%s", p.cmd.ProcessState, p.out)
		case <-deadline:
			return fmt.Errorf("kindred up is not ready after %v:\n%s\n%s", startLimit, p.out, c.logs())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (c *cluster) mustStart(t *testing.T, args ...string) {
	t.Helper()
	if err := c.start(args...); err != nil {
		t.Fatal(err)
	}
}

// again restarts a stopped cluster with the same flags.
func (c *cluster) again(t *testing.T) {
	t.Helper()
	c.mustStart(t, c.args...)
}

// terminate stops the cluster as a service manager does, and checks the time and the output.
func (c *cluster) terminate(t *testing.T) {
	t.Helper()
	began := time.Now()
	if err := c.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > stopLimit {
		t.Errorf("stopping took %v, more than %v", took, stopLimit)
	}
}

// kill kills the process, as a crash does.
func (c *cluster) kill(t *testing.T) {
	t.Helper()
	if err := c.up.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.up.done
}

// signal stops the process with a signal that it handles.
func (c *cluster) signal(s os.Signal) error {
	if err := c.up.cmd.Process.Signal(s); err != nil {
		return err
	}
	select {
	case <-c.up.done:
	case <-time.After(30 * time.Second):
		_ = c.up.cmd.Process.Kill()
		return errors.New("kindred up had not ended 30 s after the signal")
	}
	if code := c.up.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("kindred up ended with status %d:\n%s", code, c.up.out)
	}
	return nil
}

func (c *cluster) running() bool {
	if c.up == nil {
		return false
	}
	select {
	case <-c.up.done:
		return false
	default:
		return true
	}
}

// remove stops the cluster and removes everything that it left on the machine.
func (c *cluster) remove() error {
	var err error
	if c.running() {
		err = c.signal(syscall.SIGTERM)
	}
	if _, absent := os.Stat(c.dir); absent == nil {
		if r := c.run("reset"); r.code != 0 {
			err = errors.Join(err, fmt.Errorf("kindred reset: %s", r.err))
		}
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(c.dir)))
}

func (c *cluster) loadImages() error {
	if userRuntime != "" {
		return nil
	}
	file, err := archive()
	if err != nil {
		return err
	}
	if r := c.run("image", "load", file); r.code != 0 {
		return fmt.Errorf("kindred image load: %s", r.err)
	}
	return nil
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// config returns the administrator's configuration, for clients over HTTPS without a QPS limit.
func (c *cluster) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (c *cluster) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// logs returns the end of the logs of the cluster's processes.
func (c *cluster) logs() string {
	var text strings.Builder
	if c.up != nil {
		fmt.Fprintf(&text, "--- kindred up %v\n%s", c.args, c.up.out)
	}
	for _, name := range []string{"kindred.log", "containerd.log"} {
		content, err := os.ReadFile(filepath.Join(c.dir, "logs", name))
		if err != nil {
			continue
		}
		fmt.Fprintf(&text, "--- %s\n%s\n", name, tail(string(content), 8000))
	}
	return text.String()
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "[...]" + s[len(s)-n:]
}

// result is the result of a command.
type result struct {
	out, err string
	code     int
}

// commandLimit is longer than any command takes that ends by itself.
const commandLimit = 8 * time.Minute

// runCommand runs a command until it ends, or stops it if it does not.
func runCommand(cmd *exec.Cmd, stdin string) result {
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Start()
	if err == nil {
		late := time.AfterFunc(commandLimit, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
		defer late.Stop()
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{err: err.Error(), code: -1}
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// startProcess starts a command in the background and collects its stdout and stderr.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, out: &servers.Output{}, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = p.out, p.out
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// end kills a background process.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
