// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki manages the keys and certificates of one cluster in one directory.
//
// There are two certificate authorities, as Kubernetes requires. The cluster CA signs all serving and
// client certificates. The front proxy CA signs the certificate that may assert another user's
// identity in X-Remote-* headers (the aggregation layer). A third secret is the key that signs service
// account tokens. All keys are ECDSA P-256, because generating RSA keys would add a tenth of a second
// each to the start.
//
// Authorities and the token key are durable: they are written once, synced to disk, and never
// replaced, because every kubeconfig and every token depends on them. Leaf certificates are cached
// on disk: a stored one is used if it matches the request and has a third of its validity left, and
// is replaced otherwise. Certificates that the process uses are renewed while it runs (Keep,
// Renew). After a crash at any moment, every file is either complete or replaced at the next start.
package pki
