// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// directChain returns the filters for clients in this process: those of k8s.io/apiserver
// (genericapiserver.DefaultBuildHandlerChain), without the ones for connections, browsers and
// traces, which such requests do not have. Authentication, authorization, audit and request metrics are the same, and
// priority for clients that are not parts of the cluster.
//
// k8s.io/apiserver also runs each request in a goroutine, to respond in its place on a timeout.
// Here the deadline in the context is enough, because everything that a request waits for respects
// it.
func directChain(api http.Handler, g *genericapiserver.Config) http.Handler {
	estimates := flowcontrolrequest.NewWorkEstimator(g.StorageObjectCountTracker.Get, g.FlowControl.GetInterestedWatchCount,
		flowcontrolrequest.DefaultWorkEstimatorConfig(), g.FlowControl.GetMaxSeats)
	refused := filters.WithFailedAuthenticationAudit(filters.Unauthorized(g.Serializer), g.AuditBackend, g.AuditPolicyRuleEvaluator)

	decided := filters.WithAuthorization(api, g.Authorization.Authorizer, g.Serializer)
	queued := genericfilters.WithPriorityAndFairness(decided, g.LongRunningFunc, g.FlowControl, estimates, g.RequestTimeout/4)
	handler := unlessPart(decided, queued)
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

// unlessPart applies priority and fairness to all requests except those of the cluster's parts. Each part limits how
// many requests it makes at a time, and the garbage collector yields to client requests by itself
// (ownership/collector/turns.go). Matching schemas and queueing is a twelfth of the cost of a deletion.
func unlessPart(decided, queued http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller, ok := request.UserFrom(r.Context()); ok && isPart(caller.GetName()) {
			decided.ServeHTTP(w, r)
			return
		}
		queued.ServeHTTP(w, r)
	})
}

// serveDirectly switches in-process requests to the direct chain once all paths are installed.
// Until then k8s.io/apiserver's chain answers that a path is not served yet, instead of 404.
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
