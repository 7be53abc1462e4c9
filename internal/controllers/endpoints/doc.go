// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpoints lists the pods behind each Service in an Endpoints object
// of its name: the older form of EndpointSlices, for clients that still read it.
//
// What an Endpoints object should say is a pure function of the Service and its
// pods (subsets.go). The controller writes it when it says something else, and
// deletes it with its Service.
package endpoints
