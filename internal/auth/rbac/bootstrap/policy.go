// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap has the default roles and bindings of a cluster, and creates them.
//
// They have the names and rules of Kubernetes v1.37 with its default features: people bind "edit"
// and "view", tools expect "system:discovery", and each controller has "system:controller:<name>".
// The policy is data, one line for each rule: "on these resources, these verbs".
//
// At each start Ensure adds what is missing. It never removes what an administrator has added, and
// ignores objects annotated with rbac.authorization.kubernetes.io/autoupdate: "false".
package bootstrap

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	Roles               []rbacv1.Role
	RoleBindings        []rbacv1.RoleBinding
}

// Optional are the features that add rules to the policy.
type Optional struct {
	// Gangs is set if PodGroups are served.
	Gangs bool
}

// Default returns the policy of a new cluster. The caller may change it.
func Default(features Optional) Policy {
	var p Policy
	p.addClusterRoles()
	p.addControllers()
	p.addClusterRoleBindings()
	p.addNamespaced()
	p.addOwnership()
	p.addLocalPath()
	p.addUnserved()
	p.addDNS()
	p.addIngress()
	if features.Gangs {
		p.addGangs()
	}
	p.gather()
	return p
}

// The API groups in the policy.
const (
	core                  = ""
	admissionregistration = "admissionregistration.k8s.io"
	apiextensions         = "apiextensions.k8s.io"
	apps                  = "apps"
	authentication        = "authentication.k8s.io"
	authorization         = "authorization.k8s.io"
	autoscaling           = "autoscaling"
	batch                 = "batch"
	certificates          = "certificates.k8s.io"
	coordination          = "coordination.k8s.io"
	customMetrics         = "custom.metrics.k8s.io"
	discovery             = "discovery.k8s.io"
	events                = "events.k8s.io"
	extensions            = "extensions"
	externalMetrics       = "external.metrics.k8s.io"
	metrics               = "metrics.k8s.io"
	networking            = "networking.k8s.io"
	node                  = "node.k8s.io"
	policy                = "policy"
	rbac                  = rbacv1.GroupName
	resource              = "resource.k8s.io"
	scheduling            = "scheduling.k8s.io"
	storage               = "storage.k8s.io"
	storagemigration      = "storagemigration.k8s.io"
	anyGroup              = rbacv1.APIGroupAll
)

// Sets of verbs.
const (
	read      = "get list watch"
	write     = "create update patch delete deletecollection"
	readWrite = read + " " + write
	change    = "update patch"
	anyVerb   = rbacv1.VerbAll
)

// rule is one rule of the policy.
type rule rbacv1.PolicyRule

// on allows verbs on resources of one group. Both are lists separated by spaces.
func on(group, resources, verbs string) rule {
	return onGroups([]string{group}, resources, verbs)
}

// onGroups is on for resources that are or were in several groups.
func onGroups(groups []string, resources, verbs string) rule {
	return rule{APIGroups: groups, Resources: strings.Fields(resources), Verbs: sortedWords(verbs)}
}

// paths allows verbs on non-resource URLs.
func paths(urls, verbs string) rule {
	return rule{NonResourceURLs: strings.Fields(urls), Verbs: sortedWords(verbs)}
}

// named limits a rule to objects of the given names.
func (r rule) named(names string) rule {
	r.ResourceNames = strings.Fields(names)
	return r
}

// recordEvents allows writing events.
func recordEvents() rule {
	return onGroups([]string{core, events}, "events", "create update patch")
}

func sortedWords(words string) []string {
	list := strings.Fields(words)
	slices.Sort(list)
	return list
}

// defaultMeta marks an object as part of the policy.
func defaultMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func policyRules(rules []rule) []rbacv1.PolicyRule {
	list := make([]rbacv1.PolicyRule, 0, len(rules))
	for _, r := range rules {
		list = append(list, rbacv1.PolicyRule(r))
	}
	return list
}

// clusterRole adds a ClusterRole and returns it for further labels.
func (p *Policy) clusterRole(name string, rules ...rule) *rbacv1.ClusterRole {
	p.ClusterRoles = append(p.ClusterRoles, rbacv1.ClusterRole{ObjectMeta: defaultMeta("", name), Rules: policyRules(rules)})
	return &p.ClusterRoles[len(p.ClusterRoles)-1]
}

func (p *Policy) role(namespace, name string, rules ...rule) {
	p.Roles = append(p.Roles, rbacv1.Role{ObjectMeta: defaultMeta(namespace, name), Rules: policyRules(rules)})
}

// bind adds a ClusterRoleBinding that has the name of its ClusterRole.
func (p *Policy) bind(role string, subjects ...rbacv1.Subject) {
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, rbacv1.ClusterRoleBinding{
		ObjectMeta: defaultMeta("", role),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbac, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	})
}

func (p *Policy) bindIn(namespace, name, role string, subjects ...rbacv1.Subject) {
	p.RoleBindings = append(p.RoleBindings, rbacv1.RoleBinding{
		ObjectMeta: defaultMeta(namespace, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbac, Kind: "Role", Name: role},
		Subjects:   subjects,
	})
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbac, Kind: rbacv1.GroupKind, Name: name}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbac, Kind: rbacv1.UserKind, Name: name}
}

// systemAccount returns a service account of kube-system.
func systemAccount(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: name}
}
