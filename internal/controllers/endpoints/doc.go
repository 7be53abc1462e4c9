// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpoints keeps an Endpoints object for each Service, with the addresses of its
// pods: the predecessor of EndpointSlices, for clients that still read it.
//
// The content of an Endpoints object is a pure function of the Service and its pods
// (subsets.go). The controller writes it if it has changed, and deletes it with its Service.
package endpoints
