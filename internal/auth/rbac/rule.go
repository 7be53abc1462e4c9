// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// anyAllows reports whether one of the rules allows a request.
func anyAllows(rules []rbacv1.PolicyRule, request authorizer.Attributes) bool {
	for i := range rules {
		if Allows(&rules[i], request) {
			return true
		}
	}
	return false
}

// Allows reports whether a rule allows a request.
func Allows(rule *rbacv1.PolicyRule, request authorizer.Attributes) bool {
	if !contains(rule.Verbs, request.GetVerb(), rbacv1.VerbAll) {
		return false
	}
	if !request.IsResourceRequest() {
		return coversPath(rule.NonResourceURLs, request.GetPath())
	}
	return contains(rule.APIGroups, request.GetAPIGroup(), rbacv1.APIGroupAll) &&
		coversResource(rule.Resources, request.GetResource(), request.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, request.GetName()))
}

func contains(list []string, value, wildcard string) bool {
	for _, item := range list {
		if item == value || item == wildcard {
			return true
		}
	}
	return false
}

// coversResource reports whether a list covers a resource: by "pods", "pods/log", "*" (all
// resources and subresources) or "*/scale" (that subresource of all resources).
func coversResource(resources []string, resource, subresource string) bool {
	for _, covered := range resources {
		if covered == rbacv1.ResourceAll {
			return true
		}
		if subresource == "" {
			if covered == resource {
				return true
			}
			continue
		}
		parent, sub, ok := strings.Cut(covered, "/")
		if ok && sub == subresource && (parent == resource || parent == rbacv1.ResourceAll) {
			return true
		}
	}
	return false
}

// coversPath reports whether a list covers a non-resource path. A trailing * matches any suffix.
func coversPath(urls []string, path string) bool {
	for _, url := range urls {
		if url == rbacv1.NonResourceAll || url == path {
			return true
		}
		if strings.HasSuffix(url, "*") && strings.HasPrefix(path, strings.TrimRight(url, "*")) {
			return true
		}
	}
	return false
}
