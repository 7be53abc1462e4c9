// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// clusterDNS is the role of the cluster's DNS servers. They read from the informers of the API server.
const clusterDNS = "kindred:cluster-dns"

// addDNS lets the DNS servers publish their Service and their EndpointSlices.
func (p *Policy) addDNS() {
	p.role(metav1.NamespaceSystem, clusterDNS,
		on(core, "services", "create"),
		on(core, "services", "update delete").named("kube-dns"),
		on(discovery, "endpointslices", "create update delete"),
	)
	p.bindIn(metav1.NamespaceSystem, clusterDNS, clusterDNS, systemAccount("cluster-dns"))
}
