// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command parity proves by difference that Kindred serves Kubernetes' API: it sends
// upstream's kube-apiserver and the built kindred binary the same few thousand requests
// and compares their responses. docs/parity.md explains its output.
//
//	go run ./test/parity                          # every kind
//	go run ./test/parity -kinds pods,batch -n 500 # some, at length
//	go run ./test/parity -kinds jobs -show backoffLimit
//
// Requests come from manifests (manifests/<group>/<resource>.yaml, each document one
// variant) and from their mutations, which the API's own OpenAPI suggests: whatever a
// field's schema allows or forbids is tried in its place. A seed decides which of the
// possible mutations are tried, so that a run can be repeated.
//
// Only what a server answers to the request itself is compared. Nothing may act on the
// objects meanwhile, so most requests are dry runs, and the controllers of both servers
// lose their RBAC bindings before the first one.
package main
