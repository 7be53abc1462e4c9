// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
)

// TestPodNetworkWireGuard: with --pod-network wireguard, pods of two machines reach each other by encrypted packets, and not at all
// when the machines no longer know each other's keys. The interfaces are those of wireguard-go, which needs no module of the kernel.
func TestPodNetworkWireGuard(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	program := filepath.Join(t.TempDir(), "wireguard-go")
	if out, err := exec.Command("go", "build", "-o", program, "golang.zx2c4.com/wireguard").CombinedOutput(); err != nil {
		t.Fatalf("building wireguard-go: %v\n%s", err, out)
	}
	l := newLAN(t)
	first, second := l.machine(1), l.machine(2)
	c := stoppedCluster(t, "")
	first.dir = c.dir
	links := []string{first.wireguardGo(program), second.wireguardGo(program)}
	s := newSession(t, first.serveWithNode(c, "--bind-address", first.address, "--node-name", "first", "--pod-network", "wireguard"))
	second.resetAfterwards()
	second.join(append(s.invitation(), "--node-name", secondNode, "--pod-network", "wireguard")...)
	second.loadImages()
	s.connects()

	client, err := wgctrl.New()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, link := range links {
		device, err := client.Device(link)
		if err != nil {
			t.Fatal(err)
		}
		if len(device.Peers) != 1 || device.Peers[0].TransmitBytes == 0 || device.Peers[0].ReceiveBytes == 0 {
			t.Errorf("%s has carried nothing: %+v", link, device.Peers)
		}
	}

	s.kubectl("annotate", "node", secondNode, "kindred.dev/wireguard-key-", "--overwrite")
	s.within(10*time.Second, "pods of a machine without a key are not reached", func() error {
		if r := s.try("exec", "on-first", "--", "wget", "-q", "-T", "1", "-O", "-", s.pod("on-second").Status.PodIP+":8080"); r.code == 0 {
			return errors.New("they are")
		}
		return nil
	})
}

// wireguardGo creates the interface of a machine as a process, and returns its name.
func (m *otherMachine) wireguardGo(program string) string {
	m.t.Helper()
	layout, err := datadir.New(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	names, err := containerd.NamesFor(layout.ID())
	if err != nil {
		m.t.Fatal(err)
	}
	link := names.Bridge + "-wg"
	cmd := exec.Command("nsenter", "--net=/run/netns/"+m.namespace, program, "--foreground", link)
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 200 {
		if _, err := os.Stat(filepath.Join("/var/run/wireguard", link+".sock")); err == nil {
			return link
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.t.Fatalf("%s does not serve %s", program, link)
	return ""
}
