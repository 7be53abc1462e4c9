// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
)

// traffic notices whether anybody waits for the server: users and their programs, not what
// the cluster does by itself.
type traffic struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// arrivals are when the latest requests came, a ring; next is the oldest of them.
	arrivals [trafficRequests]time.Time
	next     int
}

// There is traffic if so many requests came within so much time, 20 a second. One alone, the
// deletion of an owner say, is none: it is over before what it caused begins.
const (
	trafficRequests = 4
	trafficWindow   = 200 * time.Millisecond
)

// wrap notes the requests that somebody waits for.
func (t *traffic) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		caller, known := request.UserFrom(r.Context())
		if ok && known && isAwaited(info, caller) {
			t.arrived()
		}
		next.ServeHTTP(w, r)
	})
}

func (t *traffic) arrived() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrivals[t.next] = t.clock.Now()
	t.next = (t.next + 1) % trafficRequests
}

// flows tells whether there is traffic.
func (t *traffic) flows() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock.Since(t.arrivals[t.next]) <= trafficWindow
}

// isAwaited tells whether somebody waits for the answer. Nobody waits for a watch, and leases
// are renewed as long as there is anything.
func isAwaited(info *request.RequestInfo, caller user.Info) bool {
	if !info.IsResourceRequest || info.Verb == "watch" || info.APIGroup == coordinationv1.GroupName {
		return false
	}
	return !isPart(caller.GetName())
}

// isPart tells whether the user is a part of the cluster: the server, the scheduler, a
// controller, a node. Service accounts outside of kube-system are not.
func isPart(name string) bool {
	if strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) {
		return strings.HasPrefix(name, systemAccounts)
	}
	return name != user.Anonymous && strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "kindred:")
}

// systemAccounts is what the names of kube-system's service accounts begin with.
var systemAccounts = serviceaccount.MakeUsername(metav1.NamespaceSystem, "")
