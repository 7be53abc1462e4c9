// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kindredtest

import "os/exec"

// dieWithParent does nothing: only Linux can signal the death of a parent.
func dieWithParent(*exec.Cmd) {}
