// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

// TestPages: the server has the pages of all components of Kubernetes, for the monitoring of the cluster.
func TestPages(t *testing.T) {
	for path, want := range map[string][]string{
		"/metrics/slis": {"kubernetes_healthcheck{"},
		"/statusz":      {"apiserver statusz", "Go version", "Paths", "/healthz"},
		"/flagz":        {"apiserver flagz", "secure-port"},
	} {
		got := server.do(t, server.admin, "GET", path, "", "Accept", "text/plain")
		for _, part := range want {
			if got.code != http.StatusOK || !strings.Contains(got.body, part) {
				t.Errorf("%s: %d, without %q:\n%s", path, got.code, part, got.body)
			}
		}
		if got := server.do(t, server.anonymous(t), "GET", path, ""); got.code != http.StatusUnauthorized {
			t.Errorf("%s, for anonymous users: %d", path, got.code)
		}
	}
	versioned := server.do(t, server.admin, "GET", "/flagz", "", "Accept", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")
	if versioned.code != http.StatusOK || !strings.Contains(versioned.body, `"secure-port":"0"`) {
		t.Errorf("the versioned form: %d\n%s", versioned.code, versioned.body)
	}
}
