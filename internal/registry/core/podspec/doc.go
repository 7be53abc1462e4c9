// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podspec checks pods and templates of pods, and changes of them. It is the validation of
// Kubernetes v1.37 with its default features, on the versioned types, as pure functions.
//
// Each file holds the rules of one theme: containers, volumes, security and so on. A specChecker
// holds what the rules of one spec share. Types, paths and details of errors are upstream's, even
// where they are odd: clients may match on them. Sources of volumes that PersistentVolumes have too
// are in package volumespec, node selectors in nodeselector, names and amounts of resources in
// resourcename.
//
// Callers guarantee that
//   - objects were defaulted (package core), so that "required" also means that defaults are missing,
//   - fields of features that are disabled in v1.37 were cleared (DropAlphaFields), so that no rule
//     covers them, and the selectors of a new pod were completed from its labels (Complete),
//   - the strategy runs the validation that k8s.io/api declares (rest.DeclarativeValidation). Errors
//     that it reports too are marked as covered, so that clients see them once.
package podspec
