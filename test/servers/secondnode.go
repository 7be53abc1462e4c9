// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// SecondNode is a second node of a Kindred cluster: a process with a containerd of its own, in a network namespace that
// is connected with this machine as another machine would be.
type SecondNode struct {
	// Binary is the program of test/secondnode, Kindred that of the cluster.
	Binary, Kindred string
	// Env is added to the environment of this process.
	Env []string

	dir     string
	ns      netns.NsHandle
	process *process
}

// The names and addresses of the second machine. They are fixed, because there is one at a time.
const (
	secondName = "kindred-second"
	// secondLink is the network of the two machines.
	secondHost, secondAddress = "10.247.0.1/30", "10.247.0.2/30"
	secondPods                = "10.246.0.0/24"
)

// BuildSecondNode builds the program in dir/bin. dir is the directory of this package.
func BuildSecondNode(ctx context.Context, dir string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(dir, "bin", "secondnode"))
	if err != nil {
		return "", err
	}
	_, err = run(ctx, dir, "go", "build", "-buildvcs=false", "-ldflags", UpstreamStamp, "-o", binary, "github.com/kindred-project/kindred/test/secondnode")
	return binary, err
}

// HostAddress returns the address of this machine that both nodes reach.
func (*SecondNode) HostAddress() netip.Addr { return netip.MustParsePrefix(secondHost).Addr() }

// Data returns the node's data directory.
func (n *SecondNode) Data() string { return filepath.Join(n.dir, "data") }

// Start starts the node of a running cluster, with its files in dir, and returns when it is ready.
func (n *SecondNode) Start(ctx context.Context, cluster *Server, dir string) (err error) {
	n.dir = dir
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := n.connect(); err != nil {
		return fmt.Errorf("the network namespace of the second node: %w", err)
	}
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		return err
	}
	server, err := endpointOf(ctx, client)
	if err != nil {
		return err
	}
	err = n.within(func() error {
		n.process, err = launch("second node", filepath.Join(dir, "second-node.log"), n.Env, n.Binary,
			"-cluster", cluster.Data, "-data-dir", n.Data(), "-server", server, "-name", secondName,
			"-pod-cidr", secondPods, "-service-cidr", serviceCIDR)
		return err
	})
	if err != nil {
		return err
	}
	return n.process.await(ctx, func(ctx context.Context) error {
		if _, err := os.Stat(filepath.Join(n.Data(), "kindred.json")); err != nil {
			return err // written when it has joined
		}
		return nodeReady(ctx, client, secondName)
	})
}

// endpointOf returns the URL of the API at the address that pods use.
func endpointOf(ctx context.Context, client kubernetes.Interface) (string, error) {
	slice, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if len(slice.Endpoints) == 0 || len(slice.Ports) == 0 {
		return "", errors.New("the Service kubernetes has no endpoints")
	}
	return "https://" + net.JoinHostPort(slice.Endpoints[0].Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port))), nil
}

// connect creates the namespace, its link to this machine, and the routes that a network of two machines has: each
// reaches the other's pods.
func (n *SecondNode) connect() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return err
	}
	defer here.Close()
	if n.ns, err = netns.New(); err != nil {
		return err
	}
	if err := netns.Set(here); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = secondName
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(n.ns))}); err != nil {
		return fmt.Errorf("link %s: %w", secondName, err)
	}
	if err := addressed(secondName, secondHost); err != nil {
		return err
	}
	if err := n.within(func() error {
		return errors.Join(linkUp("lo"), addressed("eth0", secondAddress), routed("0.0.0.0/0", secondHost))
	}); err != nil {
		return err
	}
	return routed(secondPods, secondAddress)
}

// within runs a function in the namespace. Processes that it starts stay there.
func (n *SecondNode) within(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return err
	}
	defer here.Close()
	if err := netns.Set(n.ns); err != nil {
		return err
	}
	return errors.Join(do(), netns.Set(here))
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// addressed gives a link an address and sets it up.
func addressed(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, parsed), netlink.LinkSetUp(link))
}

// routed adds a route by way of an address.
func routed(prefix, gateway string) error {
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		return err
	}
	via := netip.MustParsePrefix(gateway).Addr()
	return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.IP(via.AsSlice())})
}

// CheckRunning returns an error if the process has ended.
func (n *SecondNode) CheckRunning() error { return n.process.checkRunning() }

// Stop stops the node and removes everything that it left on the machine, except its log.
func (n *SecondNode) Stop(ctx context.Context) error {
	if n.process != nil {
		n.process.stop()
	}
	var failed []error
	if _, err := os.Stat(n.Data()); err == nil {
		failed = append(failed, n.within(func() error { return n.verb(ctx, "reset") }))
	}
	if link, err := netlink.LinkByName(secondName); err == nil {
		failed = append(failed, netlink.LinkDel(link))
	}
	if n.ns.IsOpen() {
		failed = append(failed, n.ns.Close())
	}
	return errors.Join(failed...)
}

// Load adds the images of archives to the node.
func (n *SecondNode) Load(ctx context.Context, archives []string) error {
	return n.verb(ctx, append([]string{"image", "load"}, archives...)...)
}

// verb runs a verb of Kindred with the node's data directory.
func (n *SecondNode) verb(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, n.Kindred, append(args, "--data-dir", n.Data())...)
	cmd.Env = append(os.Environ(), n.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kindred %v: %w: %s", args, err, out)
	}
	return nil
}
