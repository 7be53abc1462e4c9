// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootdir is the layout of the node agent's root directory: where the volumes, the
// logs and the other files of each pod are.
package rootdir
