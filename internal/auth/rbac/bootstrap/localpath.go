// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

// localPathProvisioner is the role of the provisioner of the default StorageClass.
const localPathProvisioner = "system:controller:local-path-provisioner"

// addLocalPath lets the provisioner of the default StorageClass do what upstream's role
// system:persistent-volume-provisioner allows, write what sidecars of CSI drivers write: finalizers of
// volumes, and the capacity of claims, and ask the agents of nodes for directories.
func (p *Policy) addLocalPath() {
	p.controller("local-path-provisioner",
		on(core, "persistentvolumes", read+" create update delete"),
		on(core, "persistentvolumeclaims", read+" update"),
		on(core, "persistentvolumeclaims/status", "update"),
		on(core, "nodes", read),
		on(core, "nodes/proxy", "create"),
		on(storage, "storageclasses", read),
		recordEvents(),
	)
}
