// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kindred-project/kindred/internal/containerd"
	kubeletconfig "github.com/kindred-project/kindred/internal/node/config"
)

const configHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// freePort returns a port that is free on every address.
func freePort(t *testing.T) int {
	t.Helper()
	listener := listen(t, ":0")
	defer listener.Close()
	return portOf(listener)
}

func testMachine(config *kubeletconfig.Configuration) (*Machine, *[]string) {
	var notices []string
	return &Machine{
		options: Options{Name: "n", Kubelet: config, Notice: func(line string) { notices = append(notices, line) }},
		bridge:  containerd.Network{Gateway: net.IPv4(127, 0, 0, 1)},
	}, &notices
}

// TestTakenDefaultPort: the agent takes the port of its Node's status, or else a free one, and the user is notified.
func TestTakenDefaultPort(t *testing.T) {
	taken := listen(t, "127.0.0.1:0")
	last := freePort(t)
	for name, tc := range map[string]struct {
		inStatus int
		want     func(int) bool
	}{
		"a new node":                  {0, func(port int) bool { return port != portOf(taken) }},
		"a node that had a port":      {last, func(port int) bool { return port == last }},
		"a node whose port was taken": {portOf(taken), func(port int) bool { return port != portOf(taken) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := kubeletconfig.Default()
			c.Port, c.HealthzPort = int32(portOf(taken)), new(int32(0))
			m, notices := testMachine(c)
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(tc.inStatus)
			ports, err := m.openPorts(context.Background(), fake.NewClientset(node))
			if err != nil {
				t.Fatal(err)
			}
			defer ports.close()
			if !tc.want(int(ports.number())) || ports.number() == 0 {
				t.Errorf("the port is %d", ports.number())
			}
			want := fmt.Sprintf("port %d of 127.0.0.1 is taken: the agent of node n listens on port %d", c.Port, ports.number())
			if len(*notices) != 1 || !strings.Contains((*notices)[0], want) {
				t.Errorf("notices %q, want %q", *notices, want)
			}
		})
	}
}

// TestConfiguredPorts: a port of a file is used, and the start fails if it is taken.
func TestConfiguredPorts(t *testing.T) {
	taken := portOf(listen(t, "127.0.0.1:0"))
	free, other := freePort(t), freePort(t)
	for _, tc := range []struct {
		config, wrong          string
		main, readOnly, health bool
	}{
		{fmt.Sprintf("port: %d\nhealthzPort: 0", taken), "the port of the node's agent", false, false, false},
		{fmt.Sprintf("port: %d\nhealthzPort: %d", free, taken), "healthzPort", false, false, false},
		{fmt.Sprintf("port: %d\nhealthzPort: 0\nreadOnlyPort: %d", free, taken), "readOnlyPort", false, false, false},
		{fmt.Sprintf("port: %d\nhealthzPort: 0", free), "", true, false, false},
		{fmt.Sprintf("port: %d\nhealthzPort: 0\nreadOnlyPort: %d", free, other), "", true, true, false},
		{fmt.Sprintf("port: %d\nhealthzPort: %d", free, other), "", true, false, true},
		{fmt.Sprintf("enableServer: false\nreadOnlyPort: %d\nhealthzPort: 0", taken), "", false, false, false},
	} {
		c, err := kubeletconfig.Parse([]byte(configHead + tc.config + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", tc.config, err)
		}
		m, _ := testMachine(c)
		ports, err := m.openPorts(context.Background(), fake.NewClientset())
		if (err == nil) != (tc.wrong == "") || (err != nil && !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%s: error %v, want %q", tc.config, err, tc.wrong)
		}
		if got := [...]bool{ports.main != nil, ports.readOnly != nil, ports.health != nil}; got != [...]bool{tc.main, tc.readOnly, tc.health} {
			t.Errorf("%s: the open ports are %v", tc.config, got)
		}
		ports.close()
	}
}

// TestTakenHealthPort: a second cluster does without the default port of health.
func TestTakenHealthPort(t *testing.T) {
	c := kubeletconfig.Default()
	c.Port, c.HealthzPort = int32(freePort(t)), new(int32(portOf(listen(t, "127.0.0.1:0"))))
	m, notices := testMachine(c)
	ports, err := m.openPorts(context.Background(), fake.NewClientset())
	if err != nil || ports.health != nil || len(*notices) > 0 {
		t.Errorf("error %v, notices %q", err, *notices)
	}
	ports.close()
}

// TestListenAddress: the agent listens on the node's address, or on the address of a file.
func TestListenAddress(t *testing.T) {
	for config, want := range map[string]string{
		"":                   "127.0.0.1",
		"address: 127.0.0.2": "127.0.0.2",
		"address: 0.0.0.0":   "::",
	} {
		c, err := kubeletconfig.Parse(fmt.Appendf(nil, "%shealthzPort: 0\nport: %d\nreadOnlyPort: %d\n%s\n", configHead, freePort(t), freePort(t), config))
		if err != nil {
			t.Fatal(err)
		}
		m, _ := testMachine(c)
		ports, err := m.openPorts(context.Background(), fake.NewClientset())
		if err != nil {
			t.Fatalf("%s: %v", config, err)
		}
		for name, listener := range map[string]net.Listener{"main": ports.main, "read-only": ports.readOnly} {
			host := listener.Addr().(*net.TCPAddr).IP
			if !host.Equal(net.ParseIP(want)) && !(want == "::" && host.IsUnspecified()) {
				t.Errorf("%q: the %s port listens on %s, want %s", config, name, host, want)
			}
		}
		ports.close()
	}
}
