// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serverAway is the time without the only server, unless KINDRED_AWAY sets another. It is longer than the grace period of a node's
// Lease. After an hour, the pods' tokens are due for renewal as well.
const serverAway = 90 * time.Second

// TestFaultsOfAServerAway: pods run on while the only server is away, and when it is back, its nodes are Ready, no pod has been restarted or
// replaced, and tokens are valid.
func TestFaultsOfAServerAway(t *testing.T) {
	needFaults(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	away := serverAway
	if text := os.Getenv("KINDRED_AWAY"); text != "" {
		var err error
		if away, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	l := newLAN(t)
	m := l.machine(1)
	c := l.serverWithNode(2, "--bind-address", l.address(2), "--node-name", "first")
	s := newSession(t, c)
	m.resetAfterwards()
	m.join(append(s.invitation(), "--node-name", secondNode)...)
	m.loadImages()
	s.connects()
	before := map[string]*corev1.Pod{"on-first": s.pod("on-first"), "on-second": s.pod("on-second")}

	c.kill(t)
	for end := time.Now().Add(away); time.Now().Before(end); time.Sleep(5 * time.Second) {
		for name, pod := range before {
			if err := m.asks(pod.Status.PodIP, name); err != nil {
				t.Fatalf("%s, %v before the server is back: %v", name, time.Until(end), err)
			}
		}
	}
	c.again(t)
	// No Lease counts as old before the server has watched it for a grace period.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes.Items {
			if len(n.Spec.Taints) > 0 {
				t.Fatalf("node %s has the taints %v", n.Name, n.Spec.Taints)
			}
		}
	}
	for name, was := range before {
		if is := s.pod(name); is.UID != was.UID || is.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("pod %s was replaced or restarted: %+v", name, is.Status)
		}
		s.hasValidToken(name)
	}
	s.reaches("on-first", before["on-second"].Status.PodIP+":8080", "on-second")
	s.reaches("on-second", before["on-first"].Status.PodIP+":8080", "on-first")
	s.createWeb(2)
}

// asks returns an error unless a pod's web server gives its name to a client on the machine.
func (m *otherMachine) asks(ip, name string) error {
	transport := &http.Transport{DialContext: m.dial, DisableKeepAlives: true}
	client := http.Client{Timeout: 5 * time.Second, Transport: transport}
	response, err := client.Get("http://" + net.JoinHostPort(ip, "8080"))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if strings.TrimSpace(string(answer)) != name {
		err = errors.Join(err, fmt.Errorf("the answer is %q", answer))
	}
	return err
}

// dial connects from the machine. A socket belongs to the network namespace of the thread that makes it.
func (m *otherMachine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	if err := netns.Set(m.at); err != nil {
		return nil, err
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, network, address)
	return connection, errors.Join(err, netns.Set(here))
}

// hasValidToken waits until the API accepts the token in a pod's volume, which the node renews.
func (s *session) hasValidToken(pod string) {
	s.Helper()
	s.within(3*time.Minute, "the token of "+pod+" is valid", func() error {
		r := s.try("exec", pod, "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
		if r.code != 0 {
			return errors.New(r.err)
		}
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimSpace(r.out)}}
		review, err := s.cluster.client(s.T).AuthenticationV1().TokenReviews().Create(s.Context(), review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if !review.Status.Authenticated {
			return errors.New(review.Status.Error)
		}
		return nil
	})
}
