// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac decides requests by Roles and their bindings, and keeps users
// from granting what they do not hold.
//
// Permissions are purely additive: a request is allowed as soon as one rule of
// one role that is bound to the user allows it, and nobody is ever denied, only
// not allowed (another authorizer may still have an opinion).
//
// Most users are named by few bindings, and a cluster has many, so bindings are
// indexed by subject in the informers' own stores: a decision looks up the
// user's name and each of their groups, first cluster-wide, then in the
// namespace of the request, and never walks through the bindings of others.
package rbac
