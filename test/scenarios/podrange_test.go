// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// smallRange has five addresses for pods: the first is the bridge's.
const smallRange = "10.199.7.0/29"

// batch creates pods that serve their names.
func (s *session) batch(name string, pods int) {
	s.Helper()
	var manifest strings.Builder
	for i := range pods {
		fmt.Fprintf(&manifest, `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[2]d, labels: {batch: %[1]s}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "%[3]s"
    command: [sh, -c, "mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
---`, name, i, image)
	}
	s.apply(manifest.String())
}

// served waits until all pods of a batch are ready, and checks that each is alone at its address, which the node has
// recorded as allocated.
func (s *session) served(name string, pods int) {
	s.Helper()
	s.eventually("the pods of "+name+" are ready", func() error {
		list := s.pods("batch=" + name)
		if len(list) != pods {
			return fmt.Errorf("%d pods", len(list))
		}
		var err error
		for _, pod := range list {
			if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				err = errors.Join(err, fmt.Errorf("%s is %s and not ready", pod.Name, pod.Status.Phase))
			}
		}
		return err
	})
	allocated, at := s.allocated(), map[string]string{}
	for _, pod := range s.pods("batch=" + name) {
		ip := pod.Status.PodIP
		if !netip.MustParsePrefix(smallRange).Contains(netip.MustParseAddr(ip)) {
			s.Errorf("%s has the address %s outside of %s", pod.Name, ip, smallRange)
		}
		if at[ip] != "" {
			s.Errorf("%s and %s have the address %s", at[ip], pod.Name, ip)
		}
		at[ip] = pod.Name
		if !slices.Contains(allocated, ip) {
			s.Errorf("%s has the address %s, and allocated are %v", pod.Name, ip, allocated)
		}
		s.wantBody(pod.Name, ip+":8080")
	}
}

// allocated returns the addresses that the node has recorded as those of pods.
func (s *session) allocated() (addresses []string) {
	s.Helper()
	dir := filepath.Join(s.cluster.dir, "containerd", "cni", "addresses")
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since the directory was read
		}
		if err == nil && !entry.IsDir() {
			if _, not := netip.ParseAddr(entry.Name()); not == nil {
				addresses = append(addresses, entry.Name())
			}
		}
		return err
	})
	if _, absent := os.Stat(dir); err != nil || absent != nil {
		s.Fatal(errors.Join(err, absent))
	}
	return addresses
}

// TestPodAddressesAreReused: on a node with fewer addresses than pods over time, each pod gets an address of its own, also
// while the pods before it are torn down and the process is killed meanwhile. No address stays allocated.
func TestPodAddressesAreReused(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--pod-cidr", smallRange))
	s.batch("all", 5)
	s.served("all", 5)
	// A sixth pod waits for an address, and gets the first one that is free.
	s.batch("sixth", 1)
	s.eventually("the node has no more addresses", func() error {
		if events := s.kubectl("get", "events", "--field-selector", "involvedObject.name=sixth-0"); !strings.Contains(events, "no IP addresses available") {
			return errors.New(events)
		}
		return nil
	})
	s.kubectl("delete", "pod", "all-2")
	s.served("sixth", 1)

	// Each batch starts while the one before it ends.
	previous := []string{"all", "sixth"}
	for round := range 3 {
		name := fmt.Sprintf("round-%d", round)
		s.kubectl("delete", "pods", "--wait=false", "-l", "batch in ("+strings.Join(previous, ",")+")")
		s.batch(name, 4)
		s.served(name, 4)
		previous = []string{name}
	}

	// The process is killed when the node has torn down some of the pods, or as soon as it starts to.
	for round, left := range []int{4, 2} {
		name := fmt.Sprintf("killed-%d", round)
		s.kubectl("delete", "pods", "--wait=false", "-l", "batch="+previous[0])
		s.eventually("the teardown has begun", func() error {
			if n := len(s.allocated()); n > left {
				return fmt.Errorf("%d addresses are allocated", n)
			}
			return nil
		})
		s.cluster.kill(t)
		s.cluster.again(t)
		s.batch(name, 5)
		s.served(name, 5)
		previous = []string{name}
	}
	s.kubectl("delete", "pods", "--all")
	s.eventually("all addresses are free", func() error {
		if addresses := s.allocated(); len(addresses) > 0 {
			return fmt.Errorf("allocated are %v", addresses)
		}
		return nil
	})
}
