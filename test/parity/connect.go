// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
)

// connection is a request to a subresource that is proxied to a node or a pod. There are no nodes in
// this test, so only the API server's own refusals are compared.
type connection struct{ method, query string }

// connections are tried on each object that has the subresource and is not bound to a node.
var connections = map[string][]connection{
	"log": {
		{http.MethodGet, ""}, {http.MethodGet, "container=none"}, {http.MethodGet, "tailLines=-1"}, {http.MethodGet, "sinceSeconds=0"},
		{http.MethodGet, "limitBytes=0"}, {http.MethodGet, "previous=true&follow=true"}, {http.MethodGet, "tailLines=x"},
		{http.MethodGet, "sinceSeconds=5&sinceTime=2024-01-02T03:04:05Z"}, {http.MethodGet, "stream=Stdout"}, {http.MethodGet, "stream=Bogus"},
		{http.MethodGet, "container=app&stream=Stdout&tailLines=3"},
	},
	"exec": {
		{http.MethodPost, ""}, {http.MethodPost, "command=true"}, {http.MethodPost, "command=true&stdout=true"}, {http.MethodGet, "command=true&stdout=true&container=none"},
		{http.MethodPost, "command=true&stdout=true&stderr=true&tty=true&container=app"}, {http.MethodPost, "command=true&stdin=x"},
	},
	"attach": {
		{http.MethodPost, ""}, {http.MethodPost, "stdout=true"}, {http.MethodGet, "stdout=true&container=none"}, {http.MethodPost, "stdin=true&container=app"},
	},
	"portforward": {{http.MethodPost, ""}, {http.MethodPost, "ports=80"}, {http.MethodPost, "ports=x"}},
}

// connect tries the connections of a subresource.
func (t *trial) connect(ctx context.Context, o *stored, name string) error {
	if _, bound := lookup(o.upstream, path{"spec", "nodeName"}); bound {
		return nil
	}
	var pairs []pair
	for _, c := range connections[name] {
		pairs = append(pairs, o.same(name+" of "+o.name()+" with "+c.query, request{Method: c.method, Path: query(o.path+"/"+name, c.query)}))
	}
	_, err := t.run(ctx, pairs...)
	return err
}
