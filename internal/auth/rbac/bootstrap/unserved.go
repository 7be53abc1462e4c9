// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

// unservedController is the role of the controller that records events about what nothing acts on.
const unservedController = "system:controller:unserved-controller"

func (p *Policy) addUnserved() {
	p.controller("unserved-controller",
		on(core, "nodes persistentvolumes pods services", read),
		on(networking, "ingresses ingressclasses", read),
		on(batch, "jobs", read),
		on(certificates, "certificatesigningrequests", read),
		on(resource, "resourceclaims", read),
		recordEvents(),
	)
}
