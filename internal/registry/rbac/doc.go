// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac holds the built-in kinds of rbac.authorization.k8s.io. Nobody
// may give through them what they have not got themselves, unless the verbs
// escalate and bind allow it: Escalation says so.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/rbac/v1
package rbac
