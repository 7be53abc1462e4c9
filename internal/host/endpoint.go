// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/knftables"

	"github.com/kindred-project/kindred/internal/links"
)

// Endpoint is an address that leads to the servers of a cluster, whichever machines these are. The host translates it (DNAT), so that no
// process is needed.
type Endpoint struct {
	// Name is a DNS label that no other endpoint of the host has.
	Name string `json:"name"`
	// Owner is as that of a machine.
	Owner string `json:"owner,omitempty"`
	// Address is chosen when the endpoint is made.
	Address netip.Addr `json:"address"`
	// Port is the port of the endpoint and of the servers.
	Port uint16 `json:"port"`
	// Servers are the addresses that connections are distributed to; without any, they are refused.
	Servers []netip.Addr `json:"servers,omitempty"`
	// Network is that of the machines and of all endpoints, in what SetEndpoint returns. It is stored for all of them once.
	Network netip.Prefix `json:"network,omitzero"`
}

func (h *Host) endpointFile(name string) string { return h.path("endpoints", name+".json") }

// Endpoints returns all endpoints, by name.
func (h *Host) Endpoints() ([]Endpoint, error) {
	files, err := entries(h.path("endpoints"))
	if err != nil {
		return nil, err
	}
	var all []Endpoint
	for _, file := range files {
		name, isJSON := strings.CutSuffix(file, ".json")
		if !isJSON {
			continue // a write that was interrupted
		}
		var e Endpoint
		found, err := readJSON(h.endpointFile(name), &e)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, e)
		}
	}
	return all, nil
}

// SetEndpoint makes an endpoint, or changes the servers and the owner of one that exists. An address that is given is that of
// an endpoint that another cluster made, or of a new one.
func (h *Host) SetEndpoint(ctx context.Context, e Endpoint) (Endpoint, error) {
	if err := checkName("an endpoint", e.Name); err != nil {
		return e, err
	}
	if e.Port == 0 {
		return e, fmt.Errorf("endpoint %s has no port", e.Name)
	}
	err := h.changing(func() error {
		n, err := h.ensureNetwork(ctx)
		if err != nil {
			return err
		}
		if err := h.settleAddress(n, &e); err != nil {
			return err
		}
		if err := writeJSON(h.endpointFile(e.Name), e); err != nil {
			return err
		}
		e.Network = n.Range
		return h.writeRules(ctx, n)
	})
	return e, err
}

// settleAddress sets the address of an endpoint: that which it has, or else a free one.
func (h *Host) settleAddress(n network, e *Endpoint) error {
	var existing Endpoint
	found, err := readJSON(h.endpointFile(e.Name), &existing)
	switch {
	case err != nil:
		return err
	case found && e.Address.IsValid() && e.Address != existing.Address:
		return fmt.Errorf("endpoint %s has the address %s, and not %s", e.Name, existing.Address, e.Address)
	case found:
		e.Address = existing.Address
		return nil
	case !e.Address.IsValid():
		e.Address, err = h.freeEndpoint(n)
		return err
	}
	used, err := h.addresses()
	if err != nil {
		return err
	}
	if used[e.Address] || !n.Range.Contains(e.Address) || e.Address == n.gateway() {
		return fmt.Errorf("endpoint %s: the address %s is taken, or not of the network of machines %s", e.Name, e.Address, n.Range)
	}
	return nil
}

// DeleteEndpoint removes an endpoint. One that does not exist is no error.
func (h *Host) DeleteEndpoint(ctx context.Context, name string) error {
	if err := checkName("an endpoint", name); err != nil {
		return err
	}
	return h.changing(func() error {
		if err := os.Remove(h.endpointFile(name)); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		n, err := h.chooseRange()
		if err != nil {
			return err
		}
		return h.writeRules(ctx, n)
	})
}

// table is the name of the nftables table of the machines.
func (h *Host) table() string { return "kindred-machines-" + h.id() }

// writeRules replaces the rules of the host: packets of machines to other networks get the host's address, and connections to endpoints
// are translated. The bridge has the addresses of endpoints, so that the host answers for them, and refuses connections to those without
// a server.
func (h *Host) writeRules(ctx context.Context, n network) error {
	endpoints, err := h.Endpoints()
	if err != nil {
		return err
	}
	if err := h.setAddresses(n, endpoints); err != nil {
		return fmt.Errorf("addresses of endpoints: %w", err)
	}
	nft, err := knftables.New(knftables.IPv4Family, h.table())
	if err != nil {
		return fmt.Errorf("rules of machines: %w", err)
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Flush(&knftables.Table{})
	addRules(tx, n, endpoints)
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("rules of machines: %w", err)
	}
	return nil
}

func (h *Host) removeRules(ctx context.Context) error {
	nft, err := knftables.New(knftables.IPv4Family, h.table())
	if err != nil {
		return err
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
	return nft.Run(ctx, tx)
}

// addRules adds the chains and their rules to a transaction.
func addRules(tx *knftables.Transaction, n network, endpoints []Endpoint) {
	for _, hook := range []struct {
		name     string
		hook     knftables.BaseChainHook
		priority knftables.BaseChainPriority
	}{
		{"prerouting", knftables.PreroutingHook, knftables.DNATPriority},
		{"output", knftables.OutputHook, knftables.DNATPriority},
		{"postrouting", knftables.PostroutingHook, knftables.SNATPriority},
	} {
		tx.Add(&knftables.Chain{Name: hook.name, Type: knftables.PtrTo(knftables.NATType), Hook: knftables.PtrTo(hook.hook), Priority: knftables.PtrTo(hook.priority)})
	}
	for _, e := range endpoints {
		if len(e.Servers) == 0 {
			continue
		}
		rule := knftables.Concat("ip daddr", e.Address, "tcp dport", e.Port, "dnat to", destination(e))
		tx.Add(&knftables.Rule{Chain: "prerouting", Rule: rule})
		tx.Add(&knftables.Rule{Chain: "output", Rule: rule})
	}
	// A machine that reaches another one through an endpoint must get its answers from there.
	tx.Add(&knftables.Rule{Chain: "postrouting", Rule: knftables.Concat("ip saddr", n.Range, "ip daddr", n.Range, "ct status dnat masquerade")})
	tx.Add(&knftables.Rule{Chain: "postrouting", Rule: knftables.Concat("ip saddr", n.Range, "ip daddr !=", n.Range, "masquerade")})
}

// destination returns the servers of an endpoint as nft writes them. A connection gets one of them at random.
func destination(e Endpoint) string {
	servers := slices.SortedFunc(slices.Values(e.Servers), netip.Addr.Compare)
	if len(servers) == 1 {
		return servers[0].String()
	}
	choices := make([]string, len(servers))
	for i, server := range servers {
		choices[i] = fmt.Sprintf("%d : %s", i, server)
	}
	return fmt.Sprintf("numgen random mod %d map { %s }", len(servers), strings.Join(choices, ", "))
}

// setAddresses gives the bridge the addresses of the endpoints and no others beside its own.
func (h *Host) setAddresses(n network, endpoints []Endpoint) error {
	link, err := netlink.LinkByName(h.bridge())
	if err != nil {
		return err
	}
	existing, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	wanted := map[netip.Addr]bool{}
	for _, e := range endpoints {
		wanted[e.Address] = true
	}
	for _, a := range existing {
		address, _ := netip.AddrFromSlice(a.IP.To4())
		if address == n.gateway() || wanted[address] {
			delete(wanted, address)
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil {
			return err
		}
	}
	for address := range wanted {
		if err := netlink.AddrReplace(link, links.Address(netip.PrefixFrom(address, 32))); err != nil {
			return err
		}
	}
	return nil
}
