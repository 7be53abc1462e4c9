// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

const (
	// dialLimit is the time that a server has to accept a connection before the next one is tried.
	dialLimit = 3 * time.Second
	// silenceLimit is the time after which a connection on which the server does not acknowledge anything is closed (tcp(7)). It is
	// much shorter than the time after which the cluster gives up a node that does not report.
	silenceLimit = 8 * time.Second
)

// shortLived is how long a connection lasts at most that was of no use: something else than a server of the cluster listens there.
const shortLived = time.Second

// apiName is in the certificates of all API servers, so that a certificate is valid whichever of them answers.
const apiName = "kubernetes.default.svc"

// endpoints are the addresses at which the servers of a cluster listen.
type endpoints struct {
	clock  clock.PassiveClock
	dialer net.Dialer

	mu sync.Mutex
	// known are host:port, in the order in which they are tried: the one that has accepted the last connection is first.
	known []string
	// accepted is when it has.
	accepted time.Time
}

func newEndpoints(clock clock.PassiveClock, known ...string) *endpoints {
	return &endpoints{clock: clock, known: known, dialer: net.Dialer{
		Timeout:         dialLimit,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silenceLimit / 4, Interval: silenceLimit / 4, Count: 3},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			controlErr := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silenceLimit.Milliseconds()))
			})
			return errors.Join(controlErr, err)
		},
	}}
}

// dial connects to the first server that accepts, whatever the address: all serve the same API.
func (e *endpoints) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var errs []error
	for _, address := range e.next() {
		connection, err := e.dialer.DialContext(ctx, network, address)
		if err == nil {
			e.prefer(address)
			return connection, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// next returns the addresses in the order in which they are to be tried. One that is needed again at once goes to the end.
func (e *endpoints) next() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.known) > 1 && e.clock.Since(e.accepted) < shortLived {
		e.known = append(e.known[1:], e.known[0])
	}
	return slices.Clone(e.known)
}

// prefer moves an address that has accepted to the front.
func (e *endpoints) prefer(address string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.accepted = e.clock.Now()
	if i := slices.Index(e.known, address); i > 0 {
		e.known = slices.Insert(slices.Delete(e.known, i, i+1), 0, address)
	}
}

// learn replaces the addresses, and reports whether they have changed. The given one stays, because it may be a load balancer's.
func (e *endpoints) learn(given string, addresses []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := append([]string{given}, addresses...)
	next := slices.DeleteFunc(slices.Clone(e.known), func(a string) bool { return !slices.Contains(wanted, a) })
	for _, address := range wanted {
		if !slices.Contains(next, address) {
			next = append(next, address)
		}
	}
	changed := !slices.Equal(slices.Sorted(slices.Values(next)), slices.Sorted(slices.Values(e.known)))
	e.known = next
	return changed
}

// apiEndpoints returns the addresses in an EndpointSlice, if it is one of the Service kubernetes.
func apiEndpoints(slice *discoveryv1.EndpointSlice) ([]string, bool) {
	if slice.Namespace != metav1.NamespaceDefault || slice.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
		return nil, false
	}
	var found []string
	for _, port := range slice.Ports {
		if port.Port == nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				found = append(found, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	return found, true
}

// addressOf returns the host and port of a URL of an API.
func addressOf(server string) (string, error) {
	to, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "443")), nil
}
