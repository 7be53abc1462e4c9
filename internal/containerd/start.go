// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/durable"
)

// Options configure the containerd that [Start] runs.
type Options struct {
	// Names are the machine-wide names of the data directory.
	Names Names
	// Root has content, snapshots, configuration and network state.
	Root string
	// RunDir has the socket and the state that does not survive a reboot. Its path must be short,
	// because the path of a unix socket has at most 107 bytes (unix(7)).
	RunDir string
	// LogFile is where containerd's output goes.
	LogFile string
	// ClusterCIDRs, PodCIDRs and IPv6 are those of NetworkOptions.
	ClusterCIDRs, PodCIDRs []netip.Prefix
	IPv6                   bool
	// SystemdCgroup has systemd create the cgroups of containers. Their parent is a slice then.
	SystemdCgroup bool
	// Clock defaults to the real clock.
	Clock clock.Clock
	// Progress is called, if set, after each step.
	Progress func(step string)
}

// Runtime is a running containerd.
type Runtime struct {
	// Endpoint is the CRI endpoint, a unix:// address.
	Endpoint string
	// Version is containerd's version.
	Version string
	// Network is the pod network of its sandboxes.
	Network Network
	// Adopted is set if it was already running.
	Adopted bool

	options Options
}

const (
	startLimit = 30 * time.Second
	stopGrace  = 5 * time.Second
	logLimit   = 16 << 20
	maxSocket  = 107
)

// Start starts the containerd of the data directory, and waits until it serves CRI and has the pause image.
// It uses one that is already running, but restarts it if its configuration has changed. A restart does not
// affect containers.
func Start(ctx context.Context, o Options) (*Runtime, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	if missing := Missing(); len(missing) > 0 {
		return nil, missingError(missing)
	}
	if err := o.prepare(); err != nil {
		return nil, err
	}
	network, err := EnsureNetwork(ctx, o.NetworkOptions())
	if err != nil {
		return nil, err
	}
	o.Progress(fmt.Sprintf("pod network %s on bridge %s", strings.Join(network.Ranges(), " and "), network.Bridge))
	r := &Runtime{Endpoint: "unix://" + o.socket(), Network: network, options: o}
	if err := r.ensureRunning(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// NetworkOptions returns the options of the network that Start creates, for callers that need the bridge
// earlier.
func (o Options) NetworkOptions() NetworkOptions {
	return NetworkOptions{Names: o.Names, Dir: o.networkDir(), ClusterCIDRs: o.ClusterCIDRs, PodCIDRs: o.PodCIDRs, IPv6: o.IPv6}
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// check validates the options. Above all, it protects Reset, which kills and removes everything below these
// names and directories.
func (o Options) check() error {
	names, err := NamesFor(o.Names.ID)
	if err != nil {
		return err
	}
	if names != o.Names {
		return fmt.Errorf("the names %+v are not those of %s", o.Names, o.Names.ID)
	}
	for what, path := range map[string]string{"Root": o.Root, "RunDir": o.RunDir, "LogFile": o.LogFile} {
		if !filepath.IsAbs(path) || filepath.Dir(filepath.Clean(path)) == "/" {
			return fmt.Errorf("containerd's %s %q is not an absolute path below a directory of its own", what, path)
		}
	}
	return nil
}

func (o Options) socket() string     { return filepath.Join(o.RunDir, "containerd.sock") }
func (o Options) state() string      { return filepath.Join(o.RunDir, "state") }
func (o Options) config() string     { return filepath.Join(o.Root, "config.toml") }
func (o Options) networkDir() string { return filepath.Join(o.Root, "cni") }

// HostsDir has one directory for each registry, with its hosts.toml: mirrors and certificates (containerd's
// docs/hosts.md). containerd reads them at each pull. It is named like /etc/containerd/certs.d, the directory
// of a machine's own containerd.
func (o Options) HostsDir() string { return filepath.Join(o.Root, "certs.d") }

// prepare creates the directories.
func (o Options) prepare() error {
	if n := len(o.socket()); n > maxSocket {
		return fmt.Errorf("socket path %s has %d bytes, a unix socket's has at most %d; use a shorter directory", o.socket(), n, maxSocket)
	}
	for _, dir := range []string{o.Root, o.RunDir, filepath.Dir(o.LogFile)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	for _, dir := range []string{o.HostsDir(), confDir(o.networkDir())} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// ensureRunning finds or starts the process and waits until it is ready.
func (r *Runtime) ensureRunning(ctx context.Context) error {
	o := r.options
	binary, err := lookPath("containerd")
	if err != nil {
		return err
	}
	v, err := detectVersion(ctx, binary)
	if err != nil {
		return err
	}
	r.Version = v.text
	config, err := o.configFor(v)
	if err != nil {
		return err
	}
	if r.Adopted, err = o.runsWith(config); err != nil {
		return err
	}
	var ended <-chan struct{}
	if !r.Adopted {
		if ended, err = r.launch(ctx, binary, config); err != nil {
			return err
		}
	}
	return r.awaitReady(ctx, ended)
}

// configFor returns the configuration file for the machine, the version and the options.
func (o Options) configFor(v version) ([]byte, error) {
	runc, err := lookPath("runc")
	if err != nil {
		return nil, err
	}
	crun, err := lookPath("crun")
	if err != nil {
		crun = "" // it is optional: a RuntimeClass may name it as its handler
	}
	cni, _ := findCNI()
	snapshotter, err := chooseSnapshotter(o.Root)
	if err != nil {
		return nil, err
	}
	mayLower, err := mayLowerOOMScore()
	if err != nil {
		return nil, err
	}
	return settings{
		Root: o.Root + "/root", State: o.state(), Socket: o.socket(),
		Hosts: o.HostsDir(), NetworkConf: confDir(o.networkDir()), NetworkBin: cni,
		Runc: runc, Crun: crun, Snapshotter: snapshotter, Cgroup: o.Names.RuntimeCgroup, SystemdCgroup: o.SystemdCgroup,
		RestrictOOM: !mayLower, Pause: PauseImage, Disabled: disabledFor(snapshotter),
	}.render(v)
}

// runsWith reports whether the data directory's containerd runs with this configuration.
func (o Options) runsWith(config []byte) (bool, error) {
	same, err := hasContent(o.config(), config)
	if err != nil || !same {
		return false, err
	}
	running, err := findProcesses(isContainerd(o.config()))
	closeAll(running)
	return len(running) > 0, err
}

// launch stops a running containerd, whose configuration is another one, and starts one with this
// configuration. The channel is closed when it exits.
func (r *Runtime) launch(ctx context.Context, binary string, config []byte) (<-chan struct{}, error) {
	o := r.options
	if err := r.Stop(ctx); err != nil {
		return nil, err
	}
	if err := durable.WriteFile(o.config(), config, 0o644); err != nil {
		return nil, err
	}
	if err := os.Remove(o.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := limitLog(o.LogFile, logLimit); err != nil {
		return nil, err
	}
	if err := createCgroup("/sys/fs/cgroup", o.Names.RuntimeCgroup); err != nil {
		return nil, err
	}
	ended, err := spawn(binary, o.LogFile, "--config", o.config())
	if err != nil {
		return nil, fmt.Errorf("starting containerd: %w", err)
	}
	return ended, nil
}

// awaitReady waits until CRI reports that it can start sandboxes, then imports the pause image if it is
// missing. ended is nil if the process was adopted.
func (r *Runtime) awaitReady(ctx context.Context, ended <-chan struct{}) error {
	o := r.options
	conn, err := dial(r.Endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = poll(ctx, o.Clock, startLimit, func() error {
		select {
		case <-ended:
			return final{errors.New("it exited")}
		default:
			return checkReady(ctx, conn)
		}
	})
	if err != nil {
		return fmt.Errorf("containerd %s does not become ready: %w; its log %s ends with: %s",
			r.Version, err, o.LogFile, lastLines(o.LogFile, 3))
	}
	how := "started"
	if r.Adopted {
		how = "taken over"
	}
	o.Progress("containerd " + r.Version + " " + how)
	imported, err := ensurePause(ctx, o.Clock, conn)
	if err != nil {
		return fmt.Errorf("importing the pause image: %w", err)
	}
	if imported {
		o.Progress("pause image imported")
	}
	return nil
}

// Stop stops containerd and leaves containers running. The next Start takes them over.
func (r *Runtime) Stop(ctx context.Context) error {
	return r.options.stop(ctx)
}

func (o Options) stop(ctx context.Context) error {
	running, err := findProcesses(isContainerd(o.config()))
	if err != nil {
		return err
	}
	defer closeAll(running)
	return terminate(ctx, o.Clock, running, stopGrace)
}

// ImportImages imports image archives. See the function of the same name.
func (r *Runtime) ImportImages(ctx context.Context, files ...string) ([]string, error) {
	return ImportImages(ctx, r.Endpoint, files...)
}
