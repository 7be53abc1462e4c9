// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// subresources are the subresources of nodes that allow requests to a path and to the paths below it, in the order in
// which they are checked. All other paths need nodes/proxy.
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#fine-grained-authorization
var subresources = []struct {
	path  string
	names []string
}{
	{"/stats", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/logs", []string{"log"}},
	{"/checkpoint", []string{"checkpoint"}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
	{"/pods", []string{"pods", "proxy"}},
	{"/runningpods", []string{"pods", "proxy"}},
	{"/allocatedPods", []string{"pods", "proxy"}},
	{"/healthz", []string{"healthz", "proxy"}},
	{"/configz", []string{"configz", "proxy"}},
}

// subresourcesOf returns the subresources of nodes of which a client must be allowed one.
func subresourcesOf(path string) []string {
	for _, s := range subresources {
		if path == s.path || strings.HasPrefix(path, s.path+"/") {
			return s.names
		}
	}
	return []string{"proxy"}
}

// verbOf returns the API's verb for a method; none for a method that the API has not.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

func attributes(client user.Info, node, verb, path string, subresources []string) []authorizer.Attributes {
	var all []authorizer.Attributes
	for _, subresource := range subresources {
		all = append(all, authorizer.AttributesRecord{
			User: client, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: subresource, Name: node,
			ResourceRequest: true, Path: path,
		})
	}
	return all
}
