// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/kindred-project/kindred/internal/links"
)

// EnsureBridge restores the bridge if another program has removed or changed it, and reports whether it had to. Pods that
// run are connected to a new bridge.
func (n Network) EnsureBridge() (restored bool, err error) {
	intact, err := n.hasBridge()
	if err != nil || intact {
		return false, err
	}
	return true, n.ensureBridge()
}

// hasBridge reports whether the bridge is up and has its addresses.
func (n Network) hasBridge() (bool, error) {
	link, err := netlink.LinkByName(n.Bridge)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return false, nil
	}
	addresses, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false, fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	has := map[string]bool{}
	for _, a := range addresses {
		has[a.IP.String()] = true
	}
	for _, gateway := range n.Gateways() {
		if !has[gateway] {
			return false, nil
		}
	}
	return true, nil
}

// EnsureFirewall writes the firewall rules again if another program has removed the jumps to them, as a flush of all
// rules does. It reports whether it had to.
func (n Network) EnsureFirewall(ctx context.Context) (restored bool, err error) {
	for _, p := range n.PodCIDRs {
		if !familyOf(p).hasJumps(ctx, n.names) {
			return true, ensureFirewall(ctx, n.names, n.PodCIDRs)
		}
	}
	return false, nil
}

// KeepSources makes the firewall not masquerade packets from pods to the ranges, which are those of other nodes' pods.
// They replace earlier ones, and stay when the process ends.
func (n Network) KeepSources(ctx context.Context, ranges []netip.Prefix) error {
	for _, p := range n.PodCIDRs {
		if err := familyOf(p).keepSources(ctx, n.names, ranges); err != nil {
			return fmt.Errorf("writing the pod network's firewall rules: %w", err)
		}
	}
	return nil
}

// connectPods connects the pods that run to the bridge, as the CNI bridge plugin did when they started.
func (n Network) connectPods() error {
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	results, err := filepath.Glob(filepath.Join(cniResults, n.names.Network+"-*"))
	if err != nil {
		return err
	}
	for _, file := range results {
		if err := connectPod(bridge, file); err != nil {
			return fmt.Errorf("connecting a pod to bridge %s: %w", n.Bridge, err)
		}
	}
	return nil
}

// cniInterface is an interface in a result of CNI plugins. Sandbox is the path of the network namespace that it is in; ""
// for the machine's.
type cniInterface struct{ Name, Mac, Sandbox string }

// interfacesOfSandbox returns the interfaces of the pod of a sandbox.
func (n Network) interfacesOfSandbox(sandbox string) ([]cniInterface, error) {
	files, err := filepath.Glob(filepath.Join(cniResults, n.names.Network+"-"+sandbox+"-*"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("sandbox %s is not in the pod network", sandbox)
	}
	return interfacesOf(files[0])
}

// interfacesOf returns the interfaces of a pod, given the file with the result of its plugins; none if the pod is gone.
func interfacesOf(file string) ([]cniInterface, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var cached struct {
		Result struct{ Interfaces []cniInterface }
	}
	if err := json.Unmarshal(content, &cached); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cached.Result.Interfaces, nil
}

// connectPod connects the interface of a pod, given the file with the result of its plugins.
func connectPod(bridge netlink.Link, file string) error {
	interfaces, err := interfacesOf(file)
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		link, err := netlink.LinkByName(i.Name)
		// Another interface may have the name by now.
		if i.Sandbox != "" || err != nil || link.Type() != "veth" || link.Attrs().HardwareAddr.String() != i.Mac {
			continue
		}
		if err := errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetHairpin(link, true)); err != nil {
			return fmt.Errorf("%s: %w", i.Name, err)
		}
	}
	return nil
}
