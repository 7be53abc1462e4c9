// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csi sets up the volumes of the node's pods that CSI drivers provide, and publishes what the node's
// drivers can do.
//
// A volume of a pod goes through these steps, each of which can be repeated (the specification demands that
// of drivers):
//
//	Refer        the pod's record is written: from now on the pod refers to the volume
//	AwaitAttach  another part of the cluster attaches it, if the driver needs that
//	Stage        NodeStageVolume, once for all pods of the node
//	Publish      NodePublishVolume, into the pod's directory
//	Teardown     NodeUnpublishVolume; NodeUnstageVolume if no other pod refers to the volume
//
// Records on disk (record.go) say what a driver was asked to do before it is asked. They are the only state
// that Teardown needs: it works without the API, and after a SIGKILL at any point. What was never asked for
// needs no driver to tear down.
//
// The layout is that of upstream's kubelet, on which drivers and tools rely:
//
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>/vol_data.json       the pod's record
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>/mount               where the volume is published
//	pods/<uid>/volumeDevices/kubernetes.io~csi/<volume>               a link to the published device
//	plugins/kubernetes.io/csi/<driver>/<hash>/vol_data.json           the node's record
//	plugins/kubernetes.io/csi/<driver>/<hash>/globalmount             where the volume is staged
//	plugins/kubernetes.io/csi/volumeDevices/<volume>/data/<uid>.json  the pod's record of a device
//	plugins/kubernetes.io/csi/volumeDevices/<volume>/data/vol_data.json  the node's record of a device
//	plugins/kubernetes.io/csi/volumeDevices/staging/<volume>          where a device is staged
//	plugins/kubernetes.io/csi/volumeDevices/publish/<volume>/<uid>    where a device is published
package csi
