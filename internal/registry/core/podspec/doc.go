// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podspec decides what a Pod, and the template of one, may look like
// and what of it may change later. It is the validation of Kubernetes v1.37
// with its default features, on the versioned types, as pure functions.
//
// A checker walks a value and collects what is wrong; each of its methods is the
// rules of one field, and each file holds those of one theme: containers,
// volumes, security and so on. Types, paths and details of the errors are those
// that kubectl users and conformance tests know, where they are odd too: a
// client may match on any of them.
//
// Three things hold for every caller:
//   - Objects were defaulted before (package core), so that "required" also
//     means "the defaults did not run".
//   - Fields of features that are off in v1.37 were cleared before
//     (DropAlphaFields), so that no rule has to speak of them, and a new pod's
//     selectors were completed from its labels (Complete).
//   - Rules that k8s.io/api declares itself are generated and run by the strategy.
//     Errors of ours that such a rule repeats are marked as covered by it, and
//     the strategy (rest.DeclarativeValidation) reports them once.
package podspec
