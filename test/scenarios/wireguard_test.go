// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPodNetworkWireGuard: with --pod-network wireguard, pods of two machines reach each other by encrypted packets, and not at all
// when the machines no longer know each other's keys. The interfaces are those of wireguard-go, which needs no module of the kernel; the
// log of each machine names it.
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
	s := newSession(t, first.serveWithNode(c, "--bind-address", first.address, "--node-name", "first", "--pod-network", "wireguard"))
	second.resetAfterwards()
	second.join(append(s.invitation(), "--node-name", secondNode, "--pod-network", "wireguard")...)
	second.loadImages()
	links := map[*otherMachine]string{first: s.wireguardGo(first, program), second: s.wireguardGo(second, program)}
	s.connects()
	s.transfers()
	for m, name := range links {
		link, err := handleAt(t, m.at).LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if link.Attrs().MTU != 1420 {
			t.Errorf("the MTU of %s is %d, want 80 less than that of the link below", name, link.Attrs().MTU)
		}
		if carried := link.Attrs().Statistics; carried.TxBytes == 0 || carried.RxBytes == 0 {
			t.Errorf("%s has carried nothing: %+v", name, carried)
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

// missingInterface is what a machine without WireGuard in its kernel tells.
var missingInterface = regexp.MustCompile(`wireguard-go (\S+-wg)`)

// wireguardGo returns the name of a machine's interface. On a kernel without WireGuard, it starts the process that the log of the
// machine asks for.
func (s *session) wireguardGo(m *otherMachine, program string) (link string) {
	s.Helper()
	var missing bool
	s.within(20*time.Second, "a machine has WireGuard, or misses it", func() error {
		log, err := os.ReadFile(filepath.Join(m.dir, "logs", "kindred.log"))
		if found := missingInterface.FindSubmatch(log); found != nil {
			link, missing = string(found[1]), true
			return nil
		}
		links, listed := handleAt(s.T, m.at).LinkList()
		for _, l := range links {
			if strings.HasSuffix(l.Attrs().Name, "-wg") {
				link = l.Attrs().Name
				return nil
			}
		}
		return errors.Join(err, listed, errors.New("there is no interface, and its log does not ask for one"))
	})
	if !missing {
		return link
	}
	cmd := exec.Command("nsenter", "--net=/run/netns/"+m.namespace, program, "--foreground", link)
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return link
}
