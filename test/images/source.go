// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import "embed"

// Source is this package's source. Programs that cache images rebuild them when it changes.
//
//go:embed *.go
var Source embed.FS
