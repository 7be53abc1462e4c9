// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	bootstrap "k8s.io/cluster-bootstrap/token/api"
)

// machines is the group of users whose bootstrap token admits machines.
const machines = bootstrap.BootstrapDefaultGroup + ":kindred"

// clusterInfoReader is the name of the role that reads cluster-info.
const clusterInfoReader = "kindred:cluster-info"

// nodeRole is the name of the role of joined machines.
const nodeRole = "kindred:node"

// nodeRules are what a joined machine may do beyond the role system:node of upstream: read what its network needs, as network
// plugins on other clusters do with their own accounts, and leave.
var nodeRules = []*applyrbacv1.PolicyRuleApplyConfiguration{
	reads("", "services", "nodes", "namespaces", "pods"),
	reads("discovery.k8s.io", "endpointslices"),
	reads("networking.k8s.io", "networkpolicies", "servicecidrs"),
	reads("policy.networking.k8s.io", "clusternetworkpolicies"),
	applyrbacv1.PolicyRule().WithAPIGroups("").WithResources("nodes").WithVerbs("delete"), // NodeRestriction allows only its own
}

func reads(group string, resources ...string) *applyrbacv1.PolicyRuleApplyConfiguration {
	return applyrbacv1.PolicyRule().WithAPIGroups(group).WithResources(resources...).WithVerbs("get", "list", "watch")
}

// servingRole is the name of the role that approves certificates of the servers of nodes, which upstream leaves to administrators.
const servingRole = "kindred:serving-certificates"

var servingRules = []*applyrbacv1.PolicyRuleApplyConfiguration{
	applyrbacv1.PolicyRule().WithAPIGroups("certificates.k8s.io").WithResources("signers").WithResourceNames(certificatesv1.KubeletServingSignerName).WithVerbs("approve"),
}

// approver is the user that approves certificates.
var approver = serviceaccount.MakeUsername(metav1.NamespaceSystem, "certificate-controller")

// bindings are the cluster-wide roles of groups and users.
var bindings = []struct{ name, role, kind, subject string }{
	{"kindred:machines", "system:node-bootstrapper", rbacv1.GroupKind, machines},
	{"kindred:machines-approval", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", rbacv1.GroupKind, machines},
	{"kindred:nodes-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", rbacv1.GroupKind, user.NodesGroup},
	{nodeRole, nodeRole, rbacv1.GroupKind, user.NodesGroup},
	{servingRole, servingRole, rbacv1.UserKind, approver},
}

// ensureRoles writes what machines may do before and after they have joined.
func ensureRoles(ctx context.Context, client kubernetes.Interface) error {
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	rbac := client.RbacV1()
	_, err := rbac.ClusterRoles().Apply(ctx, applyrbacv1.ClusterRole(nodeRole).WithRules(nodeRules...), options)
	errs := []error{err}
	_, err = rbac.ClusterRoles().Apply(ctx, applyrbacv1.ClusterRole(servingRole).WithRules(servingRules...), options)
	errs = append(errs, err)
	for _, b := range bindings {
		binding := applyrbacv1.ClusterRoleBinding(b.name).WithRoleRef(roleRef("ClusterRole", b.role)).WithSubjects(subjectOf(b.kind, b.subject))
		_, err := rbac.ClusterRoleBindings().Apply(ctx, binding, options)
		errs = append(errs, err)
	}
	role := applyrbacv1.Role(clusterInfoReader, metav1.NamespacePublic).WithRules(
		applyrbacv1.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(bootstrap.ConfigMapClusterInfo).WithVerbs("get"))
	_, err = rbac.Roles(metav1.NamespacePublic).Apply(ctx, role, options)
	errs = append(errs, err)
	binding := applyrbacv1.RoleBinding(clusterInfoReader, metav1.NamespacePublic).WithRoleRef(roleRef("Role", clusterInfoReader)).WithSubjects(subjectOf(rbacv1.UserKind, user.Anonymous))
	_, err = rbac.RoleBindings(metav1.NamespacePublic).Apply(ctx, binding, options)
	return errors.Join(append(errs, err)...)
}

func roleRef(kind, name string) *applyrbacv1.RoleRefApplyConfiguration {
	return applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
}

func subjectOf(kind, name string) *applyrbacv1.SubjectApplyConfiguration {
	return applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
}
