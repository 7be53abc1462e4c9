// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

// ingressProxy is the role of the proxy of Ingresses. What it does not read from the informers of the API server are
// the Secrets with certificates.
const ingressProxy = "kindred:ingress"

// addIngress lets the proxy of Ingresses read certificates, create its class, and write statuses and events.
func (p *Policy) addIngress() {
	p.clusterRole(ingressProxy,
		on(core, "secrets", "list watch"),
		on(networking, "ingressclasses", "create"),
		on(networking, "ingresses/status", "update"),
		recordEvents(),
	)
	p.bind(ingressProxy, systemAccount("ingress"))
}
