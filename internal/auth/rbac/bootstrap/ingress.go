// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

// ingressProxy is the role of the proxy of Ingresses. What it does not read from the informers of the API server are
// the Secrets with certificates.
const ingressProxy = "kindred:ingress"

// gatewayAPI is the group of the Gateway API.
const gatewayAPI = "gateway.networking.k8s.io"

// addIngress lets the proxy of Ingresses and Gateways read certificates and the Gateway API, create its classes, the
// CRDs and the Services that hold addresses of Gateways, and write statuses and events.
func (p *Policy) addIngress() {
	p.clusterRole(ingressProxy,
		on(core, "secrets", "list watch"),
		on(networking, "ingressclasses", "create"),
		on(networking, "ingresses/status", "patch"),
		on(apiextensions, "customresourcedefinitions", "create get list watch"),
		on(gatewayAPI, "gatewayclasses gateways httproutes grpcroutes tlsroutes referencegrants", "list watch"),
		on(gatewayAPI, "gatewayclasses", "create"),
		on(gatewayAPI, "gatewayclasses/status gateways/status httproutes/status grpcroutes/status tlsroutes/status", "update"),
		on(gatewayAPI, "gateways/finalizers", "update"), // for owner references that block deletion
		on(core, "services", "create update delete"),
		recordEvents(),
	)
	p.bind(ingressProxy, systemAccount("ingress"))
}
