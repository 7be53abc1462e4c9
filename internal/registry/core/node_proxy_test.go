// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// agentAt connects to one node, whose agent has a fixed URL.
type agentAt struct {
	NodeConnections
	url            string
	toAgent, toAny http.RoundTripper
}

func (a agentAt) Agent(_ context.Context, node string, _ bool) (*url.URL, http.RoundTripper, error) {
	if node != "node" {
		return nil, nil, apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	u, err := url.Parse(a.url)
	return u, a.toAgent, err
}

func (a agentAt) Proxy() http.RoundTripper { return a.toAny }

// TestNodeProxy: a name is the node's agent, a name with a port any port of the node, but not of the API server's own
// machine by its loopback.
func TestNodeProxy(t *testing.T) {
	toAgent, toAny := &http.Transport{}, &http.Transport{}
	const agent, agent6, loopback = "https://192.0.2.1:10250", "https://[2001:db8::1]:10250", "https://127.0.0.1:10250"
	for name, tc := range map[string]struct {
		agent, id, want string
		by              http.RoundTripper
		err             string
	}{
		"the agent":                                  {agent, "node", "https://192.0.2.1:10250", toAgent, ""},
		"the agent, by its port":                     {agent, "node:10250", "https://192.0.2.1:10250", toAgent, ""},
		"the agent, by scheme and port":              {agent, "http:node:10250", "https://192.0.2.1:10250", toAgent, ""},
		"the agent, over TLS":                        {agent, "https:node:", "https://192.0.2.1:10250", toAgent, ""},
		"another port":                               {agent, "node:9100", "//192.0.2.1:9100", toAny, ""},
		"another port over HTTP":                     {agent, "http:node:9100", "http://192.0.2.1:9100", toAny, ""},
		"another port over TLS":                      {agent, "https:node:9100", "https://192.0.2.1:9100", toAny, ""},
		"another port over IPv6":                     {agent6, "https:node:9100", "https://[2001:db8::1]:9100", toAny, ""},
		"an agent on loopback":                       {loopback, "node", "https://127.0.0.1:10250", toAgent, ""},
		"an agent on loopback by its port":           {loopback, "https:node:10250", "https://127.0.0.1:10250", toAgent, ""},
		"another port on loopback":                   {loopback, "http:node:2379", "", nil, "address not allowed"},
		"another port on IPv6 loopback":              {"https://[::1]:10250", "node:2379", "", nil, "address not allowed"},
		"another port on a link-local address":       {"https://169.254.169.254:10250", "node:80", "", nil, "address not allowed"},
		"a host name, which may resolve to loopback": {"https://localhost:10250", "http:node:2379", "", nil, "address not allowed"},
		"no such node":                               {agent, "other:9100", "", nil, `nodes "other" not found`},
		"invalid name":                               {agent, "a:b:c:d", "", nil, `invalid node request "a:b:c:d"`},
		"a scheme that is none":                      {agent, "ftp:node:9100", "", nil, `invalid node request "ftp:node:9100"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, by, err := (&nodeProxy{agentAt{url: tc.agent, toAgent: toAgent, toAny: toAny}}).location(context.Background(), tc.id)
			switch {
			case tc.err != "":
				if err == nil || err.Error() != tc.err {
					t.Errorf("%v, %v, want %s", got, err, tc.err)
				}
			case err != nil:
				t.Error(err)
			case got.String() != tc.want || by != tc.by:
				t.Errorf("%s, by the agent's transport: %v; want %s", got, by == http.RoundTripper(toAgent), tc.want)
			}
		})
	}
}
