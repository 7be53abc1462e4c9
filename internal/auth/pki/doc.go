// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki keeps the keys and certificates of one cluster in one directory.
//
// There are two authorities, as Kubernetes asks for: the cluster's own, which
// signs the API server's serving certificate and everybody's client and serving
// certificates, and the front proxy's, whose certificates alone may assert
// another user's identity in X-Remote-* headers (the aggregation layer). A third
// secret is the key that signs service account tokens. All keys are ECDSA P-256:
// they cost microseconds where RSA costs a tenth of a second of start-up time.
//
// Authorities and the token key are durable: they are written once, synced to
// disk, and never replaced, because every kubeconfig and every token in use
// depends on them. Leaf certificates are a cache: whoever asks for one gets the
// one on disk when it still says what was asked for and has a third of its life
// left, and a new one otherwise. Those in use by this process are kept (Keep), and
// renewed while it runs (Renew). A crash at any moment therefore leaves either a
// complete file or one that will be replaced.
package pki
