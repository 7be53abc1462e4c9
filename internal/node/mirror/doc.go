// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mirror shows static pods in the API. The mirror pod of a static pod has its name, spec and status, and the hash of
// its manifest. It only shows: a mirror pod that clients delete is created again, and one that belongs to no static pod of
// the node is deleted. Neither touches a container.
package mirror
