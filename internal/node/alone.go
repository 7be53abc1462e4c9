// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// errNoAPI is the error of all requests to the API of a node without one.
var errNoAPI = errors.New("this node runs without an API server")

// noAPI returns the client of a node without an API: its requests fail. Static pods need none, and what only pods of the API
// use is not started.
func noAPI() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://localhost", Transport: unreachable{}})
}

type unreachable struct{}

// RoundTrip implements http.RoundTripper.
func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNoAPI }
