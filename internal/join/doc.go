// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package join makes a machine a node of a cluster that runs elsewhere: it gets the cluster's authority and a client certificate
// with a bootstrap token (discover.go, request.go), registers the node and awaits the range of its pods (node.go), and keeps the
// node's certificates current (certificates.go). It does what kubeadm join and the kubelet's TLS bootstrapping do, with the same
// objects of the API, so that the cluster may be one of upstream's.
//
// The other side, which makes tokens and what they need in the cluster, is invite.go.
package join

import "crypto/tls"

// Certificate returns a certificate that may be replaced while it is in use; nil if there is none yet.
type Certificate func() *tls.Certificate
