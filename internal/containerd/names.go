// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"fmt"
	"regexp"
)

// Namespace is the containerd namespace of the CRI plugin's images and containers. It is fixed in the plugin.
const Namespace = "k8s.io"

// ClusterLabel is the label of a cluster's sandboxes and containers, with its [Names.ID] as the value. With it,
// two clusters can share a runtime that a user provides.
const ClusterLabel = "kindred.dev/cluster"

// Names are the machine-wide names that belong to one data directory.
type Names struct {
	// ID is eight hexadecimal digits, the same for the same data directory.
	ID string
	// Bridge is the pod network's bridge. Interface names have at most 15 bytes.
	Bridge string
	// Network is the name of the CNI network.
	Network string
	// Cgroup is the parent of all cgroups of the data directory.
	Cgroup string
	// Slice is the slice above the cgroups of pods, if systemd creates these: PodCgroup's first component as the name of a unit.
	Slice string
	// PodCgroup is the parent of the cgroups of pods.
	PodCgroup string
	// RuntimeCgroup is the cgroup of containerd and its shims. It is outside of the caller's cgroup,
	// because that may be a service that is stopped as a whole.
	RuntimeCgroup string
}

// Bridges matches the names of the network interfaces of all data directories, in nft's syntax.
const Bridges = bridgePrefix + "*"

const bridgePrefix = "kd"

var idPattern = regexp.MustCompile("^[0-9a-f]{8}$")

// NamesFor derives the names from the data directory's ID.
func NamesFor(id string) (Names, error) {
	if !idPattern.MatchString(id) {
		return Names{}, fmt.Errorf("data directory ID %q is not eight hexadecimal digits", id)
	}
	cgroup := "/kindred-" + id
	return Names{
		ID:            id,
		Bridge:        bridgePrefix + id,
		Network:       "kindred-" + id,
		Cgroup:        cgroup,
		Slice:         "kindred_" + id + ".slice",
		PodCgroup:     cgroup + "/pods",
		RuntimeCgroup: cgroup + "/runtime",
	}, nil
}
