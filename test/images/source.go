// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import "embed"

// Source is this package's own source: who keeps images for the next time has to make
// them again when their layout has changed.
//
//go:embed *.go
var Source embed.FS
