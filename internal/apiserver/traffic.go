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

// traffic detects requests of users and their programs, as opposed to those of the cluster's own
// parts.
type traffic struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// arrivals are the times of the latest requests, a ring buffer; next is the index of the
	// oldest.
	arrivals [trafficRequests]time.Time
	next     int
}

// There is traffic if this many requests arrive within this time, 20 a second. A single request,
// such as the deletion of an owner, is not traffic: it is complete before its cascade begins.
const (
	trafficRequests = 4
	trafficWindow   = 200 * time.Millisecond
)

// wrap records the arrival of requests whose client waits for the response.
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

// isBusy reports whether there is traffic.
func (t *traffic) isBusy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock.Since(t.arrivals[t.next]) <= trafficWindow
}

// isAwaited reports whether a client other than a part of the cluster waits for the response.
// Watches do not count, and neither do leases, which are renewed all the time.
func isAwaited(info *request.RequestInfo, caller user.Info) bool {
	if !info.IsResourceRequest || info.Verb == "watch" || info.APIGroup == coordinationv1.GroupName {
		return false
	}
	return !isPart(caller.GetName())
}

// isPart reports whether the user is a part of the cluster: the server, the scheduler, a
// controller, a node. Service accounts outside of kube-system are not.
func isPart(name string) bool {
	if strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) {
		return strings.HasPrefix(name, systemAccounts)
	}
	return name != user.Anonymous && strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "kindred:")
}

// systemAccounts is the prefix of the names of kube-system's service accounts.
var systemAccounts = serviceaccount.MakeUsername(metav1.NamespaceSystem, "")
