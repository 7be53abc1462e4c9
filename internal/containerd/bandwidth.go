// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// LimitBandwidth limits what the pod of a sandbox receives and sends, in bits per second; 0 is no limit. The limits are
// token bucket filters (tc-tbf(8)) at both ends of the pod's interface, and end with it.
func (n Network) LimitBandwidth(sandbox string, ingress, egress int64) error {
	interfaces, err := n.interfacesOfSandbox(sandbox)
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		switch {
		case i.Sandbox != "":
			err = i.limitSent(egress)
		case i.Name != n.Bridge:
			err = limitLink(new(netlink.Handle), i.Name, ingress)
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	return nil
}

// limitSent limits what an interface in a pod's network namespace sends.
func (i cniInterface) limitSent(bits int64) error {
	if bits == 0 {
		return nil
	}
	ns, err := netns.GetFromPath(i.Sandbox)
	if err != nil {
		return err
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer handle.Close()
	return limitLink(handle, i.Name, bits)
}

// limitLink limits what an interface sends.
func limitLink(handle *netlink.Handle, name string, bits int64) error {
	if bits == 0 {
		return nil
	}
	link, err := handle.LinkByName(name)
	if err != nil {
		return err
	}
	err = handle.QdiscReplace(bucketFilter(link.Attrs().Index, bits))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the kernel has no token bucket filter; modprobe sch_tbf")
	}
	return err
}

const (
	// burstTime is the time whose traffic may be sent at once. Shorter bursts cost throughput at high rates.
	burstTime = 20 * time.Millisecond
	// queueTime is the longest time that a packet waits before later ones are dropped.
	queueTime = 50 * time.Millisecond
	// packet is a full packet of Ethernet. A burst has space for two, a queue for ten; the kernel divides larger ones.
	packet = 1514
)

// bucketFilter returns the filter of a rate.
func bucketFilter(link int, bits int64) *netlink.Tbf {
	rate := uint64(bits) / 8
	burst := clamp(bytesIn(rate, burstTime), 2*packet)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Limit:      clamp(float64(burst)+bytesIn(rate, queueTime), 10*packet),
		Buffer:     netlink.Xmittime(rate, burst),
	}
}

func bytesIn(rate uint64, d time.Duration) float64 { return float64(rate) * d.Seconds() }

// clamp returns a number of bytes within the limits of the kernel.
func clamp(bytes float64, least uint32) uint32 {
	return uint32(min(max(bytes, float64(least)), math.MaxInt32))
}
