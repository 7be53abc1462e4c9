// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	kubeletconfig "github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/serve"
)

// agentPorts are the ports of a node's agent. A port that the configuration does not want is nil.
type agentPorts struct{ main, readOnly, health net.Listener }

// number returns the port of the API server and of tools; 0 if the agent has no server.
func (p agentPorts) number() int32 {
	if p.main == nil {
		return 0
	}
	return int32(portOf(p.main))
}

func (p agentPorts) close() {
	for _, listener := range []net.Listener{p.main, p.readOnly, p.health} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

// openPorts opens the ports of the agent. A default port that is taken is replaced by the port that the Node's status
// has, or else by a free one; a port that a file configures is not. Without a configured address the agent listens on the
// node's only, so that the agents of several clusters on one machine can have the same port.
func (m *Machine) openPorts(ctx context.Context, client kubernetes.Interface) (ports agentPorts, err error) {
	defer func() {
		if err != nil {
			ports.close()
			ports = agentPorts{}
		}
	}()
	c, address := m.options.Kubelet, m.address().String()
	if c.Address != "" {
		address = c.Address
	}
	if *c.EnableServer {
		if ports.main, err = openMain(ctx, address, c, func() int32 { return lastPort(ctx, client, m.options.Name) }); err != nil {
			return ports, err
		}
		if port := ports.number(); port != c.Port {
			m.notice(fmt.Sprintf("port %d of %s is taken: the agent of node %s listens on port %d, as the Node's status says", c.Port, address, m.options.Name, port))
		}
		if c.ReadOnlyPort > 0 {
			if ports.readOnly, err = open(ctx, address, c.ReadOnlyPort); err != nil {
				return ports, fmt.Errorf("readOnlyPort: %w", err)
			}
		}
	}
	if *c.HealthzPort > 0 {
		ports.health, err = open(ctx, c.HealthzBindAddress, *c.HealthzPort)
		if isTaken(err) && !c.IsSet("healthzPort") {
			return ports, nil // by the agent of another cluster
		}
		if err != nil {
			return ports, fmt.Errorf("healthzPort: %w", err)
		}
	}
	return ports, nil
}

func openMain(ctx context.Context, address string, c *kubeletconfig.Configuration, last func() int32) (net.Listener, error) {
	listener, err := open(ctx, address, c.Port)
	if err == nil {
		return listener, nil
	}
	if !isTaken(err) || c.IsSet("port") {
		return nil, fmt.Errorf("the port of the node's agent: %w", err)
	}
	for _, port := range []int32{last(), 0} {
		if listener, err = open(ctx, address, port); !isTaken(err) {
			break
		}
	}
	return listener, err
}

func open(ctx context.Context, address string, port int32) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(int(port))))
	if isTaken(err) {
		return nil, fmt.Errorf("%w; stop the program that listens on it, or configure another port", err)
	}
	return listener, err
}

func isTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func portOf(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }

// lastPort returns the port in the Node's status, which an earlier agent had; 0 if there is none, or no API.
func lastPort(ctx context.Context, client kubernetes.Interface, name string) int32 {
	if client == nil {
		return 0
	}
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0
	}
	return n.Status.DaemonEndpoints.KubeletEndpoint.Port
}

// servePlain serves a port without TLS, if it is open.
func (m *Machine) servePlain(name string, listener net.Listener, handler http.Handler) {
	if listener == nil {
		return
	}
	m.parts.Start(name, func(ctx context.Context) error { return serve.ServePlain(ctx, listener, handler) })
}
