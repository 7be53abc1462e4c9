// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicetaint evicts pods from devices with a NoExecute taint that their ResourceClaims do not tolerate
// (KEP-5055). A taint is in a device of a ResourceSlice, or in a DeviceTaintRule that selects the device; the status
// of a rule says what it does to pods.
package devicetaint
