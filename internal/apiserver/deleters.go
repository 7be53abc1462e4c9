// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/collector"
)

var collectorUser = serviceaccount.MakeUsername(metav1.NamespaceSystem, collector.Name)

// nameDeleters adds the caller to the context of requests that may delete objects, for the store's
// records.
func nameDeleters(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info, ok := request.RequestInfoFrom(ctx)
		caller, known := request.UserFrom(ctx)
		if !ok || !known || !deletes(info) {
			next.ServeHTTP(w, r)
			return
		}
		auditID, _ := audit.AuditIDFrom(ctx)
		ctx = deletion.WithCaller(ctx, deletion.Caller{
			User: caller.GetName(), Agent: product(r.UserAgent()), AuditID: auditID, Collector: caller.GetName() == collectorUser,
		})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// deletes reports whether a request may delete objects, or begin their deletion.
func deletes(info *request.RequestInfo) bool {
	if !info.IsResourceRequest {
		return false
	}
	switch info.Verb {
	case "delete", "deletecollection":
		return true
	}
	return info.Verb == "create" && info.Resource == "pods" && info.Subresource == "eviction"
}

// product returns the program at the beginning of a User-Agent (RFC 9110, 10.1.5).
func product(agent string) string {
	first, _, _ := strings.Cut(agent, " ")
	return first
}
