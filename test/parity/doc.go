// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command parity compares Kindred's API with upstream's: it sends upstream's kube-apiserver and the
// built kindred binary the same few thousand requests and compares their responses. docs/parity.md
// explains its output.
//
//	go run ./test/parity                          # every kind
//	go run ./test/parity -kinds pods,batch -n 500 # some kinds, with more mutations
//	go run ./test/parity -kinds jobs -show backoffLimit
//
// Requests come from manifests (manifests/<group>/<resource>.yaml, each document is one variant) and
// from mutations of them, which are derived from the API's OpenAPI: values that a field's schema
// allows or forbids are tried in its place. A seed selects the mutations, so that a run can be
// repeated.
//
// Only the direct responses are compared. No controller may change the objects meanwhile, so most
// requests are dry runs, and the controllers of both servers lose their RBAC bindings before the
// first one.
package main
