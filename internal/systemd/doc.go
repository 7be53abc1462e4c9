// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package systemd runs Kindred as a service of systemd: it writes and removes the unit, and notifies systemd of the state of
// the process.
package systemd
