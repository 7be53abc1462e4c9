// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/internal/neighbours"
)

// AnnouncePod announces the addresses of the pod of a sandbox on the bridge. The machine and other pods may know the hardware
// address of a former pod with the same address, and would send their packets there for up to a minute.
func (n Network) AnnouncePod(sandbox string) error {
	interfaces, err := n.interfacesOfSandbox(sandbox)
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		if i.Sandbox == "" {
			continue
		}
		if err := inNetworkNamespace(i.Sandbox, func() error { return announce(i.Name) }); err != nil {
			return fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	return nil
}

// announce announces the addresses of an interface, without link-local ones.
func announce(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addresses, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	for _, p := range addresses {
		if a, ok := netip.AddrFromSlice(p.IP); ok && a.IsGlobalUnicast() {
			err = errors.Join(err, neighbours.Announce(link, a.Unmap()))
		}
	}
	return err
}

// inNetworkNamespace calls do in a network namespace, given its path.
func inNetworkNamespace(path string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked, so that the thread, which is in the namespace, ends with the goroutine
		ns, err := netns.GetFromPath(path)
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}
