// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the node agent: it runs the pods that the API binds to its node,
// on a CRI runtime, and reports back. It knows only the API and CRI, so that it runs
// unchanged on another machine.
//
// The agent itself is small. It watches the pods of its node and keeps one worker
// (package pod) for each, admits or refuses them, wakes workers when the runtime
// says that something happened, and reconciles both sides now and then. Beside that
// it keeps the Node object and its lease. What a pod needs is in the packages
// below: volume, environment, image, probe, logs, cgroup; serve answers for
// logs, exec and the like.
//
// All state is in the API and in the runtime, but for the resources allocated to each pod: while
// a resize waits for room, the API's spec no longer tells them (KEP-1287). They are noted in the
// pod's directory. An agent that starts anew finds its
// containers by their labels and takes them over without disturbing any; pods which left
// the API meanwhile it cleans up.
package node
