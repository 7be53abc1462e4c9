// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the node agent, Kindred's kubelet: it runs the pods that the API binds to its node, on
// a CRI runtime, and reports their status. It knows only the API and CRI, so that it also runs on
// another machine than the API server.
//
// The agent itself is small. It watches the pods of its node and keeps one worker for each (packages
// workers and pod), admits or refuses new pods (package admission), wakes workers when something changes
// in the runtime, and periodically compares API and runtime. It also maintains the Node object and its
// lease. The other packages below provide what a pod needs: volumes, environment, images, probes, logs,
// cgroups. Package serve is the HTTP server for logs, exec, attach and port-forward.
//
// All state is in the API and in the runtime, except for the resources allocated to each pod. While a
// resize is pending, the API's spec does not have them (KEP-1287), so that they are stored in the pod's
// directory. An agent that starts finds the containers of an earlier one by their labels, takes them over
// without restarting any, and removes pods that the API no longer has.
package node
