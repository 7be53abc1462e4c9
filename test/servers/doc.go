// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers runs Kindred and upstream's kube-apiserver side by side, for those who
// compare them: test/parity what they answer, test/bench how fast. Upstream's programs
// are built from the module in upstream/, which is apart: nothing of the product can come
// to see k8s.io/kubernetes through it.
package servers
