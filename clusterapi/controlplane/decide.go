// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"time"
)

// server is what decisions need to know about a machine of the control plane.
type server struct {
	name    string
	created time.Time
	// upToDate is set if the machine is as the control plane describes it.
	upToDate bool
	// healthy is set if its node is Ready, so that it has joined the cluster.
	healthy bool
	// deleting is set if the machine is deleted. unhealthy is set if a MachineHealthCheck asks for its replacement.
	deleting, unhealthy bool
}

// step is what is done next.
type step int

const (
	// nothing is to be done.
	nothing step = iota
	// wait until something changes.
	wait
	// begin the cluster with its first machine.
	begin
	// add a machine.
	add
	// remove the machine that the decision names.
	remove
)

// decision is the next step, and why it is taken.
type decision struct {
	step    step
	machine string
	message string
}

// decide returns the next step towards the wanted number of servers that are up to date. One machine is added or removed at a time: a machine
// is added before one that it replaces is removed, and only while all others are healthy, as each change of etcd's members needs a majority.
func decide(servers []server, wanted int, initialized bool) decision {
	switch {
	case len(servers) == 0:
		return decision{step: begin, message: "the cluster has no server"}
	case slices.ContainsFunc(servers, func(s server) bool { return s.deleting }):
		return decision{step: wait, message: "a machine is being deleted"}
	case !initialized:
		return decision{step: wait, message: "the first server does not answer yet"}
	}
	if sick := find(servers, func(s server) bool { return s.unhealthy }); sick != nil {
		return replaceSick(servers, *sick)
	}
	if waiting := find(servers, func(s server) bool { return !s.healthy }); waiting != nil {
		return waitFor(servers, *waiting, wanted)
	}
	outdated := find(servers, func(s server) bool { return !s.upToDate })
	switch {
	case outdated != nil && len(servers) > wanted:
		return decision{step: remove, machine: outdated.name, message: "it is replaced by a machine that is up to date"}
	case outdated != nil:
		return decision{step: add, message: fmt.Sprintf("machine %s is out of date", outdated.name)}
	case len(servers) < wanted:
		return decision{step: add, message: fmt.Sprintf("%d of %d servers exist", len(servers), wanted)}
	case len(servers) > wanted:
		return decision{step: remove, machine: oldest(servers).name, message: fmt.Sprintf("%d servers exist, and %d are wanted", len(servers), wanted)}
	}
	return decision{}
}

// replaceSick removes a machine that a MachineHealthCheck has given up, if the others have a majority without it.
func replaceSick(servers []server, sick server) decision {
	others := 0
	for _, s := range servers {
		if s.healthy && s.name != sick.name {
			others++
		}
	}
	if majority := len(servers)/2 + 1; others < majority {
		return decision{step: wait, message: fmt.Sprintf("machine %s is not replaced: %d of %d servers are healthy beside it, and etcd needs %d", sick.name, others, len(servers), majority)}
	}
	return decision{step: remove, machine: sick.name, message: fmt.Sprintf("machine %s is replaced", sick.name)}
}

// waitFor waits for a machine that is not healthy. If it is out of date, and one too many, it is the one to be removed.
func waitFor(servers []server, waiting server, wanted int) decision {
	healthy := 0
	for _, s := range servers {
		if s.healthy {
			healthy++
		}
	}
	if !waiting.upToDate && len(servers) > wanted && healthy == len(servers)-1 {
		return decision{step: remove, machine: waiting.name, message: "it is replaced by a machine that is up to date"}
	}
	return decision{step: wait, message: fmt.Sprintf("the node of machine %s is not Ready", waiting.name)}
}

// find returns the oldest of the servers for which a function is true; nil if there is none.
func find(servers []server, is func(server) bool) *server {
	found := slices.DeleteFunc(slices.Clone(servers), func(s server) bool { return !is(s) })
	if len(found) == 0 {
		return nil
	}
	s := oldest(found)
	return &s
}

func oldest(servers []server) server {
	return slices.MinFunc(servers, func(a, b server) int { return a.created.Compare(b.created) })
}
