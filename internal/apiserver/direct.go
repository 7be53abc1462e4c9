// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// directChain is what stands before the API for the parts of this process. It is the
// library's chain (genericapiserver.DefaultBuildHandlerChain) without what is about
// connections, browsers and traces: there are none. What decides about a request is the same,
// and so are audit and the metrics of requests.
//
// The library also gives each request a goroutine of its own, to answer in its place when it
// takes too long. Here the deadline alone is enough: what a request waits for heeds it.
func directChain(api http.Handler, g *genericapiserver.Config) http.Handler {
	estimates := flowcontrolrequest.NewWorkEstimator(g.StorageObjectCountTracker.Get, g.FlowControl.GetInterestedWatchCount,
		flowcontrolrequest.DefaultWorkEstimatorConfig(), g.FlowControl.GetMaxSeats)
	refused := filters.WithFailedAuthenticationAudit(filters.Unauthorized(g.Serializer), g.AuditBackend, g.AuditPolicyRuleEvaluator)

	decided := filters.WithAuthorization(api, g.Authorization.Authorizer, g.Serializer)
	queued := genericfilters.WithPriorityAndFairness(decided, g.LongRunningFunc, g.FlowControl, estimates, g.RequestTimeout/4)
	handler := unlessCollector(decided, queued)
	if g.FeatureGate.Enabled(genericfeatures.ConstrainedImpersonation) {
		handler = impersonation.WithConstrainedImpersonation(handler, g.Authorization.Authorizer, g.Serializer)
	} else {
		handler = impersonation.WithImpersonation(handler, g.Authorization.Authorizer, g.Serializer)
	}
	handler = filters.WithAudit(handler, g.AuditBackend, g.AuditPolicyRuleEvaluator, g.LongRunningFunc)
	handler = filters.WithAuthentication(handler, g.Authentication.Authenticator, refused, g.Authentication.APIAudiences, g.Authentication.RequestHeaderConfig)
	handler = filters.WithWarningRecorder(handler)
	handler = filters.WithRequestDeadline(handler, g.AuditBackend, g.AuditPolicyRuleEvaluator, g.LongRunningFunc, g.Serializer, g.RequestTimeout)
	handler = genericfilters.WithWaitGroup(handler, g.LongRunningFunc, g.NonLongRunningRequestWaitGroup)
	handler = genericfilters.WithHTTPLogging(handler)
	handler = filters.WithLatencyTrackers(handler)
	handler = filters.WithRequestInfo(handler, g.RequestInfoResolver)
	handler = filters.WithRequestReceivedTimestamp(handler)
	handler = genericfilters.WithPanicRecovery(handler, g.RequestInfoResolver)
	return filters.WithAuditInit(handler)
}

// unlessCollector lets all requests but the garbage collector's wait by priority. The collector
// gives way by itself while others make requests, to more than its priority would
// (ownership/collector/turns.go), and the books of the queues are a twelfth of what a deletion
// costs.
func unlessCollector(decided, queued http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isCollector(r.Context()) {
			decided.ServeHTTP(w, r)
			return
		}
		queued.ServeHTTP(w, r)
	})
}

// serveDirectly lets in-process requests take the short way once all paths are there. Until
// then the library's chain says of a path that it is not served yet, and not that it is none.
func (s *Server) serveDirectly(front *genericapiserver.GenericAPIServer) error {
	return front.AddPostStartHook("direct-requests", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			for _, complete := range front.MuxAndDiscoveryCompleteSignals() {
				select {
				case <-complete:
				case <-hook.Done():
					return
				}
			}
			s.inprocess.Serve(s.direct)
		}()
		return nil
	})
}
