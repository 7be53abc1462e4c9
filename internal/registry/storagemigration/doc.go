// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagemigration holds the built-in kind of storagemigration.k8s.io: a
// StorageVersionMigration asks that all objects of a resource be written again, so
// that they are stored in the version, and with the key, of today (KEP-4192).
// Declared validations are made as in package core.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/storagemigration/v1
package storagemigration
