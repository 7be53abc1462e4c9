// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/part"
)

// StandAlone starts the node's agent in the group without an API: it runs static pods. It returns the address of the agent's
// server, which administrators with a certificate of the keys may use, when the node is ready.
func (m *Machine) StandAlone(ctx context.Context, keys *pki.PKI, parts *part.Group) (server string, err error) {
	m.api, m.parts = API{Serving: Issued(keys, m.options.Name), ClusterCA: keys.Cluster.CertPEM}, parts
	if err := m.awaitRuntime(ctx); err != nil {
		return "", err
	}
	m.superviseRuntime()
	serving, err := m.servingCertificate()
	if err != nil {
		return "", err
	}
	ports, err := m.openPorts(ctx, nil)
	if err != nil {
		return "", err
	}
	network, err := m.startLocalNetwork(ctx)
	if err != nil {
		ports.close()
		return "", err
	}
	agent, err := m.newAgent(nil, nil, network, nil, ports.number(), expiry(serving))
	if err == nil {
		err = m.serveAgent(agent, nil, ports, serving)
	}
	if err != nil {
		ports.close()
		return "", err
	}
	parts.Start("node", agent.Run)
	if err := part.Await(ctx, agent.Ready()); err != nil {
		return "", err
	}
	m.options.Step("node " + m.options.Name)
	if ports.main == nil {
		return "", nil // enableServer is false
	}
	return ports.main.Addr().String(), nil
}
