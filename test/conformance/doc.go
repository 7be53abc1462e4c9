// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs upstream's conformance specs, unmodified, on a new cluster on this
// machine, and records the results. It is run by "make conformance"; README.md describes its
// requirements and its images.
//
// Everything is built from published modules and Debian's packages: the suite and ginkgo from
// k8s.io/kubernetes (programs.go), the container runtime (the module in containerd/), the images
// (suiteimages/). Images are pulled only from a registry that it serves itself, on loopback.
package main
