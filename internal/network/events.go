// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// report records an event on the Service whose rules the kernel refuses.
func (n *Network) report(r nft.Refused) {
	namespace, name, _ := strings.Cut(r.Source, "/")
	svc, err := n.options.Informers.Core().V1().Services().Lister().Services(namespace).Get(name)
	if err != nil {
		return // not the rules of a Service
	}
	n.options.Events.Eventf(svc, v1.EventTypeWarning, "RulesRefused", "Node %s cannot route this Service: %s", n.options.Node, firstLine(r.Err))
}

// reportHealth records an event on a Service whose health check cannot be served. It is tried again with the
// Service's next change.
func (n *Network) reportHealth(svc *v1.Service, port int32, err error) {
	n.options.Events.Eventf(svc, v1.EventTypeWarning, "FailedToStartServiceHealthcheck",
		"node %s failed to start healthcheck %q on port %d: %v", n.options.Node, svc.Namespace+"/"+svc.Name, port, err)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
