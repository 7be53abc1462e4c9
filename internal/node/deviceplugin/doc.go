// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin connects to the node's device plugins (KEP-3573) and knows their devices. Which containers
// have which devices, package assign knows.
//
// A plugin registers by a call on the socket kubelet.sock in the directory device-plugins (
// [Manager.Run]), or as a driver of the type DevicePlugin ([Manager] is a plugins.Handler). The agent then watches its
// devices. When the agent starts, it removes all sockets in the directory, by which plugins notice that they have to
// register again. Until they do, the resources are known, with no healthy device.
//
// A plugin that disappears leaves its devices unhealthy; five minutes later the node no longer has them.
package deviceplugin
