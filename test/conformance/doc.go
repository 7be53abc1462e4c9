// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs upstream's own conformance specs, unmodified, on a fresh
// cluster on this machine, and records what became of each. "make conformance" is how it
// is called; README.md describes its requirements and its images.
//
// Everything is built from published modules and Debian's packages: the suite and
// ginkgo from k8s.io/kubernetes (programs.go), the container runtime (the module in
// containerd/), the images (suiteimages/). Nothing is pulled from a registry but one that it
// serves itself, on loopback.
package main
