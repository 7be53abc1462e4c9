// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac holds the built-in kinds of rbac.authorization.k8s.io. Clients can grant only
// permissions that they have, unless they have the verbs escalate or bind: Escalation checks it.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/rbac/v1
package rbac
