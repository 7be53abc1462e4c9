// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node authorizes nodes to access only what their pods need.
//
// A node's agent is the user system:node:<name> in the group system:nodes. It has the rules of the
// ClusterRole system:node, but may read only the Secrets, ConfigMaps, volumes and similar objects
// that a pod on this node refers to (KEP-279). An attacker who controls a node therefore gets its
// pods, and no secrets of other pods.
//
// An authorizer does not see the content of a request. The NodeRestriction admission plugin
// enforces the rules that depend on it.
package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kindred-project/kindred/internal/auth/rbac"
	"github.com/kindred-project/kindred/internal/auth/rbac/bootstrap"
)

const userPrefix = "system:node:"

// Identity returns the name of the node that a user acts as, and whether the user is a node.
func Identity(u user.Info) (name string, ok bool) {
	if u == nil || !slices.Contains(u.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return strings.CutPrefix(u.GetName(), userPrefix)
}

// Authorizer decides about the requests of nodes, and has no opinion on requests of other users.
type Authorizer struct {
	graph *graph
	rules []rbacv1.PolicyRule
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// NewAuthorizer returns an authorizer that reads from the given informers. It adds indexes to them,
// so call it before they are started.
func NewAuthorizer(sources Sources) (*Authorizer, error) {
	g, err := newGraph(sources)
	if err != nil {
		return nil, err
	}
	return &Authorizer{graph: g, rules: bootstrap.NodeRules()}, nil
}

// Authorize implements authorizer.Authorizer. It never denies, because RBAC may allow a node more.
func (a *Authorizer) Authorize(_ context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ok := Identity(request.GetUser())
	if !ok {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if node == "" {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("unknown node for user %q", request.GetUser().GetName()), nil
	}
	allowed, reason := a.decide(node, request)
	if !allowed {
		return authorizer.DecisionNoOpinion, reason, nil
	}
	return authorizer.DecisionAllow, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; there are no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, request))
}

// EvaluateConditions implements authorizer.Authorizer; there are no conditions.
func (*Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver. A node's permissions cannot be listed, because they
// depend on its pods.
func (a *Authorizer) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, ok := Identity(u); ok {
		return nil, nil, true, errors.New("node authorizer does not support user rule resolution")
	}
	return nil, nil, false, nil
}

// decide reports whether a node's request is allowed, and the reason if it is not.
func (a *Authorizer) decide(node string, request authorizer.Attributes) (bool, string) {
	if !request.IsResourceRequest() {
		return a.byRules(request)
	}
	namespace, name := request.GetNamespace(), request.GetName()
	reach := func(k kind) func() bool {
		return func() bool { return a.graph.byPod(node, k, namespace, name) }
	}
	switch (schema.GroupResource{Group: request.GetAPIGroup(), Resource: request.GetResource()}) {
	case corev1.Resource("secrets"):
		return read(node, request, func() bool { return a.graph.secret(node, namespace, name) })
	case corev1.Resource("configmaps"):
		return read(node, request, reach(configMapKind))
	case corev1.Resource("serviceaccounts"):
		return serviceAccount(node, request, reach(serviceAccountKind))
	case corev1.Resource("persistentvolumeclaims"):
		return claim(node, request, reach(claimKind))
	case corev1.Resource("persistentvolumes"):
		return get(node, request, func() bool { return a.graph.volume(node, name) })
	case resourcev1.Resource("resourceclaims"):
		return get(node, request, reach(resourceClaimKind))
	case storagev1.Resource("volumeattachments"):
		return get(node, request, func() bool { return a.graph.attachment(node, name) })
	case coordinationv1.Resource("leases"):
		return lease(node, request)
	case storagev1.Resource("csinodes"):
		return csiNode(node, request)
	case resourcev1.Resource("resourceslices"):
		return resourceSlice(node, request, func() bool { return a.graph.slice(node, name) })
	case corev1.Resource("nodes"):
		return nodeObject(node, request)
	case corev1.Resource("pods"):
		return pod(node, request, reach(podKind))
	case certificatesv1.Resource("podcertificaterequests"):
		return certificateRequest(node, request, func() bool { return a.graph.certificateRequest(node, namespace, name) })
	default:
		return a.byRules(request)
	}
}

// byRules decides by the rules that are the same for all nodes.
func (a *Authorizer) byRules(request authorizer.Attributes) (bool, string) {
	return slices.ContainsFunc(a.rules, func(rule rbacv1.PolicyRule) bool { return rbac.Allows(&rule, request) }), ""
}

// related decides by the graph.
func related(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	if request.GetName() == "" {
		return false, "No Object name found"
	}
	if !reached() {
		return false, fmt.Sprintf("no relationship found between node '%s' and this object", node)
	}
	return true, ""
}

// selects reports whether a list or watch selects only the node's own objects.
func selects(request authorizer.Attributes, field, node string) bool {
	requirements, err := request.GetFieldSelector()
	if err != nil {
		return false
	}
	for _, r := range requirements {
		if r.Field == field && r.Operator == selection.Equals && r.Value == node {
			return true
		}
	}
	return false
}
