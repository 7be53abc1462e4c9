// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/internal/links"
)

// Has reports whether an owner has a machine or an endpoint.
func (h *Host) Has(owner string) (bool, error) {
	all, err := h.owners()
	return slices.Contains(all, owner), err
}

// owners returns the owner of each machine and each endpoint.
func (h *Host) owners() ([]string, error) {
	machines, err := h.List()
	if err != nil {
		return nil, err
	}
	endpoints, err := h.Endpoints()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, m := range machines {
		all = append(all, m.Owner)
	}
	for _, e := range endpoints {
		all = append(all, e.Owner)
	}
	return all, nil
}

// Reset removes all machines and endpoints of an owner. If no machine and no endpoint is left then, it removes the network and the programs as well,
// which all owners share, and the directory. A directory that was never one of machines is left alone.
func (h *Host) Reset(ctx context.Context, owner string) (removed []string, err error) {
	if used, err := h.isUsed(); err != nil || !used {
		return nil, err
	}
	err = h.changing(func() error {
		if removed, err = h.removeMachines(ctx, owner); err != nil {
			return err
		}
		if err := h.removeEndpoints(owner); err != nil {
			return err
		}
		left, err := h.owners()
		switch {
		case err != nil:
			return err
		case len(left) > 0:
			return h.rewriteRules(ctx)
		}
		return h.removeShared(ctx)
	})
	return removed, err
}

// isUsed reports whether the directory is one of machines: it has been locked, or has nothing but programs, which providers install without the lock.
func (h *Host) isUsed() (bool, error) {
	if info, err := os.Stat(h.path(lockName)); err == nil && info.Mode().IsRegular() {
		return true, nil
	}
	names, err := entries(h.root)
	if err != nil || !slices.Equal(names, []string{programsName}) {
		return false, err
	}
	versions, err := entries(h.path(programsName))
	return err == nil && !slices.ContainsFunc(versions, func(name string) bool { return checkVersion(name) != nil }), err
}

// removeMachines removes the machines of an owner, and directories of machines that are not complete: their creation or removal was interrupted, and
// they have no owner.
func (h *Host) removeMachines(ctx context.Context, owner string) (removed []string, err error) {
	names, err := entries(h.path("machines"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		m, found, err := h.Get(name)
		if err != nil {
			return removed, err
		}
		if !found {
			if err := os.RemoveAll(h.dir(name)); err != nil {
				return removed, err
			}
			continue
		}
		if m.Owner != owner {
			continue
		}
		if err := h.remove(ctx, m); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}

// removeEndpoints removes the endpoints of an owner. The rules of the host still have them.
func (h *Host) removeEndpoints(owner string) error {
	endpoints, err := h.Endpoints()
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if e.Owner != owner {
			continue
		}
		if err := os.Remove(h.endpointFile(e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// rewriteRules removes the rules and addresses of endpoints that were removed. Without the bridge, as after a start of the host, there are none.
func (h *Host) rewriteRules(ctx context.Context) error {
	_, err := netlink.LinkByName(h.bridge())
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := h.chooseRange()
	if err != nil {
		return err
	}
	return h.writeRules(ctx, n)
}

// removeShared removes what all machines share: the network, the programs and the directory.
func (h *Host) removeShared(ctx context.Context) error {
	found, err := readJSON(h.path("network.json"), new(network))
	if err != nil {
		return err
	}
	if found {
		if err := errors.Join(h.removeRules(ctx), links.Remove(h.bridge())); err != nil {
			return err
		}
	}
	return h.removeRoot()
}

// removeRoot removes what is known in the directory, the lock at last: a process that locks a new one finds nothing that is still to be removed.
func (h *Host) removeRoot() error {
	for _, name := range []string{"network.json", programsName, "endpoints", "machines"} {
		if err := os.RemoveAll(h.path(name)); err != nil {
			return err
		}
	}
	if err := os.Remove(h.path(lockName)); err != nil {
		return err
	}
	switch err := os.Remove(h.root); {
	case errors.Is(err, unix.EBUSY): // a mount point
	case errors.Is(err, unix.ENOTEMPTY): // other files, or another process makes a machine
	case errors.Is(err, unix.ENOENT): // such a process has removed it
	default:
		return err
	}
	return nil
}
