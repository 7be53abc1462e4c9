// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac authorizes requests by Roles and their bindings, and prevents users from granting
// permissions that they do not have.
//
// Permissions are additive: a request is allowed if one rule of one role that is bound to the user
// allows it. RBAC never denies a request: without an allowing rule it has no opinion, and another
// authorizer may allow the request.
//
// A cluster has many bindings, but few of them name a given user. Bindings are therefore indexed by
// subject in the informers' stores: a decision looks up the user's name and each group, first in
// ClusterRoleBindings, then in the namespace of the request.
package rbac
