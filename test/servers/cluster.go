// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
)

const (
	// endLimit is the timeout for removing everything that a cluster left.
	endLimit = 10 * time.Minute
	// runtimeLimit is the timeout of one operation of containerd. On a busy machine the removal of
	// a pod takes many seconds.
	runtimeLimit = time.Minute
)

// UpstreamCluster starts whole clusters of upstream's programs.
type UpstreamCluster struct {
	UpstreamControlPlane
	kubelet, proxy, dns string
	// runtime is the directory of containerd's programs, or empty to use the installed ones.
	runtime string
}

// Cluster is a running cluster: upstream's control plane, and one node on this machine.
type Cluster struct {
	*Server
	programs UpstreamCluster
	node     node
	certificates
	// undo are the cleanups, in the order in which they were registered.
	undo []func(context.Context) error
}

// Start starts a cluster with its files in dir, which must be empty or missing. It needs root. Only
// one such cluster can run at a time, because kube-proxy's rules are global to the machine.
func (u UpstreamCluster) Start(ctx context.Context, dir string) (_ *Cluster, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	c := &Cluster{Server: &Server{Name: "upstream"}, programs: u, node: node{dir: dir}}
	defer func() {
		if err != nil {
			logs, ended := c.Stop()
			err = errors.Join(fmt.Errorf("%w\nlogs: %s", err, strings.Join(logs, " ")), ended)
		}
	}()
	for _, step := range []func(context.Context) error{
		c.locate, c.prepareMachine, c.startControlPlane, c.startRuntime, c.startNode, c.startDNS,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Stop stops the cluster and removes everything that it left on the machine except its logs, which
// it returns.
func (c *Cluster) Stop() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	var failed []error
	for _, undo := range slices.Backward(c.undo) {
		failed = append(failed, undo(ctx))
	}
	c.undo = nil
	logs, err := filepath.Glob(c.node.file("*.log"))
	return logs, errors.Join(append(failed, err)...)
}

// Load adds the images of OCI archives to the node.
func (c *Cluster) Load(ctx context.Context, archives []string) error {
	ctr, err := c.programs.runtimeProgram("ctr")
	if err != nil {
		return err
	}
	for _, archive := range archives {
		cmd := exec.CommandContext(ctx, ctr, "--address", c.node.socket(), "--namespace", "k8s.io", "images", "import", archive)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", archive, err, out)
		}
	}
	return nil
}

// after registers a cleanup that runs before all earlier ones.
func (c *Cluster) after(undo func(context.Context) error) { c.undo = append(c.undo, undo) }

// locate chooses the addresses of the cluster.
func (c *Cluster) locate(context.Context) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	taken, err := takenRanges()
	if err != nil {
		return err
	}
	pods, err := freeRange(taken)
	if err != nil {
		return err
	}
	c.node.name, c.node.address, c.node.pods = strings.ToLower(name), pods.Addr().Next(), pods
	if err := c.makeDir(); err != nil {
		return err
	}
	c.after(func(context.Context) error { return removeAllButLogs(c.node.dir) })
	c.certificates, err = newCertificates(c.node.file("certificates"), c.node.name, c.node.address)
	c.Kubeconfig = c.admin
	return err
}

// makeDir creates the cluster's directory. Its content is removed at the end, so it must be empty.
func (c *Cluster) makeDir() error {
	if err := os.MkdirAll(c.node.dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.node.dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", c.node.dir)
	}
	// The kernel reports mount points without symbolic links.
	c.node.dir, err = filepath.EvalSymlinks(c.node.dir)
	return err
}

// prepareMachine creates what the cluster needs on the machine.
func (c *Cluster) prepareMachine(ctx context.Context) error {
	settings, err := readSysctls()
	if err != nil {
		return err
	}
	rules, err := firewall(ctx)
	if err != nil {
		return err
	}
	absent := missing(fixedDirs)
	cgroups, err := cgroupDirs()
	if err != nil {
		return err
	}
	// The bridge is the lock on the machine: nothing is changed before it exists.
	if err := addBridge(c.node.pods); err != nil {
		return err
	}
	c.after(func(context.Context) error { return restoreSysctls(settings) })
	c.after(func(context.Context) error { return removeFixedDirs(absent) })
	c.after(func(context.Context) error { return removeContainerLinks(c.node.dir) })
	c.after(func(ctx context.Context) error { return removeRemnants(ctx, rules) })
	c.after(func(context.Context) error { return removeBridge() })
	c.after(func(ctx context.Context) error { return removeCgroup(ctx, cgroups) })
	return errors.Join(configureBridge(c.node.pods), forward(ctx), addCgroup(cgroups))
}

// startControlPlane starts the store, the API server, the controllers and the scheduler.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	// This includes processes that never became ready.
	c.after(func(context.Context) error { c.Server.Stop(); return nil })
	etcd, err := c.startEtcd(ctx, c.node.dir, c.programs.etcd, false)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	c.connect(config)
	if err := c.run(ctx, "kube-apiserver", c.programs.apiserver, c.checkReady, c.apiserverFlags(etcd, c.node.address)...); err != nil {
		return err
	}
	port, healthz, err := localServer()
	if err != nil {
		return err
	}
	if err := c.run(ctx, "kube-controller-manager", c.programs.controllerManager, healthz, c.controllerManagerFlags(port, c.node)...); err != nil {
		return err
	}
	if port, healthz, err = localServer(); err != nil {
		return err
	}
	return c.run(ctx, "kube-scheduler", c.programs.scheduler, healthz, c.schedulerFlags(port)...)
}

// startRuntime starts containerd.
func (c *Cluster) startRuntime(ctx context.Context) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("%w; run \"make deps\"", err)
	}
	plugins, err := networkPlugins()
	if err != nil {
		return err
	}
	restrict, err := restrictOOMScores()
	if err != nil {
		return err
	}
	network, err := c.node.network()
	if err != nil {
		return err
	}
	config, err := c.node.containerd(runc, plugins, restrict)
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.Mkdir(c.node.file("net.d"), 0o755), os.Mkdir(c.node.file("certs.d"), 0o755),
		os.WriteFile(c.node.file("net.d", "10-upstream.conflist"), network, 0o644),
		os.WriteFile(c.node.containerdConfig(), config, 0o644),
	); err != nil {
		return err
	}
	c.after(func(context.Context) error { return endShims(c.node.socket()) })
	if err := c.runContainerd(ctx, "containerd"); err != nil {
		return err
	}
	containerd := c.processes[len(c.processes)-1]
	c.after(func(ctx context.Context) error {
		if containerd.checkRunning() != nil {
			// Only containerd knows what its pods use of the machine's network.
			if err := c.runContainerd(ctx, "containerd-again"); err != nil {
				return err
			}
		}
		return c.removePods(ctx)
	})
	return nil
}

func (c *Cluster) runContainerd(ctx context.Context, name string) error {
	containerd, err := c.programs.runtimeProgram("containerd")
	if err != nil {
		return err
	}
	return c.run(ctx, name, containerd, func(ctx context.Context) error {
		service, err := c.runtimeService(ctx)
		if err != nil {
			return err
		}
		return service.Close(ctx)
	}, "--config", c.node.containerdConfig())
}

// startNode starts the node's agent and the service proxy.
func (c *Cluster) startNode(ctx context.Context) error {
	kubelet, err := c.node.kubeletConfig(c.certificates)
	if err != nil {
		return err
	}
	proxy, err := c.node.proxyConfig(c.certificates)
	if err != nil {
		return err
	}
	kubeletFile, proxyFile := c.node.file("kubelet.yaml"), c.node.file("kube-proxy.yaml")
	if err := errors.Join(os.WriteFile(kubeletFile, kubelet, 0o644), os.WriteFile(proxyFile, proxy, 0o644)); err != nil {
		return err
	}
	if err := c.run(ctx, "kubelet", c.programs.kubelet, c.nodeReady, c.node.kubeletFlags(c.certificates, kubeletFile)...); err != nil {
		return err
	}
	c.after(func(ctx context.Context) error {
		if out, err := exec.CommandContext(ctx, c.programs.proxy, "--cleanup").CombinedOutput(); err != nil {
			return fmt.Errorf("kube-proxy --cleanup: %w: %s", err, out)
		}
		return nil
	})
	return c.run(ctx, "kube-proxy", c.programs.proxy, func(ctx context.Context) error {
		return checkHealth(ctx, http.DefaultClient, "http://"+at(c.node.address, proxyPort)+"/healthz")
	}, "--config="+proxyFile)
}

// run starts a part of the cluster and waits until it is ready.
func (c *Cluster) run(ctx context.Context, name, binary string, ready func(context.Context) error, flags ...string) error {
	var env []string
	if dir := c.programs.runtime; dir != "" {
		// containerd looks for its shim in PATH.
		env = []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	}
	p, err := launch(name, c.node.file(name+".log"), env, binary, flags...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	c.after(func(context.Context) error { p.stop(); return nil })
	return p.await(ctx, ready)
}

// runtimeProgram returns the path of one of containerd's programs.
func (u UpstreamCluster) runtimeProgram(name string) (string, error) {
	if u.runtime != "" {
		return filepath.Join(u.runtime, name), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w; leave RUNTIME out to have it built", err)
	}
	return path, nil
}

// localServer returns a free port on loopback, and a health check of the server on it. The server's
// certificate is self-signed.
func localServer() (port string, healthz func(context.Context) error, err error) {
	address, err := FreeAddress()
	if err != nil {
		return "", nil, err
	}
	if _, port, err = net.SplitHostPort(address); err != nil {
		return "", nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return port, func(ctx context.Context) error {
		return checkHealth(ctx, client, "https://"+address+"/healthz")
	}, nil
}

// nodeReady returns an error until pods can run: the node is ready, and the default ServiceAccount
// exists.
func (c *Cluster) nodeReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	if err := nodeReady(ctx, client, c.node.name); err != nil {
		return err
	}
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

// nodeReady returns an error until a node is ready.
func nodeReady(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ready := func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	}
	if !slices.ContainsFunc(node.Status.Conditions, ready) {
		return fmt.Errorf("node %s is not ready: %v", node.Name, node.Status.Conditions)
	}
	return nil
}

// runtimeService connects to containerd.
func (c *Cluster) runtimeService(ctx context.Context) (internalapi.RuntimeService, error) {
	return criclient.NewRemoteRuntimeServiceBuilder().
		WithEndpoint("unix://" + c.node.socket()).
		WithConnectionTimeout(runtimeLimit).
		Build(ctx)
}

// removePods removes all pods from the node without grace period. The removal by CRI stops running
// containers.
func (c *Cluster) removePods(ctx context.Context) error {
	service, err := c.runtimeService(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = service.Close(ctx) }()
	sandboxes, err := service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{})
	if err != nil {
		return err
	}
	var failed []error
	for _, sandbox := range sandboxes {
		failed = append(failed, service.RemovePodSandbox(ctx, sandbox.Id))
	}
	return errors.Join(failed...)
}

// removeAllButLogs unmounts everything in a cluster's directory and removes its files except the
// logs.
func removeAllButLogs(dir string) error {
	if err := unmountBelow(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".log" {
			failed = append(failed, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(failed...)
}
