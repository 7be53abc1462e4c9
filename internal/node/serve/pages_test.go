// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/internal/node/config"
)

// TestPages: the pages have their text for people, and their versioned form for programs that ask for it.
func TestPages(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string][]string{
		"/statusz": {"kubelet statusz", "Go version", "Paths", "/containerLogs", "/run", "/stats"},
		"/flagz":   {"kubelet flagz", "pod-cidr", "10.0.0.0/24"},
	} {
		code, text := get(t, f.client, f.server+path)
		if code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %q:\n%s", path, part, text)
			}
		}
	}
	request, err := http.NewRequest("GET", f.server+"/flagz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")
	response, err := f.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || !strings.HasPrefix(got, "application/json") {
		t.Errorf("the versioned form: %d %s", response.StatusCode, got)
	}

	without := newFixture(t, func(c *config.Configuration) { c.Flags = nil })
	if code, _ := get(t, without.client, without.server+"/flagz"); code != http.StatusNotFound {
		t.Errorf("without flags: %d", code)
	}
	// As in upstream, these paths are not served at all without debugging handlers.
	disabled := newFixture(t, func(c *config.Configuration) { c.EnableDebuggingHandlers = new(false) })
	for _, path := range []string{"/statusz", "/flagz", "/configz", "/checkpoint/ns/p/c"} {
		if code, _ := get(t, disabled.client, disabled.server+path); code != http.StatusNotFound {
			t.Errorf("%s without debugging handlers: %d", path, code)
		}
	}
}

func TestRun(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]string{
		"/run/ns/p/c?cmd=cat+/file":    `200 id ["cat" "/file"] errors`,
		"/run/ns/p/uid/c?cmd=ls":       `200 id ["ls"] errors`,
		"/run/ns/p/c?cmd=fail":         "500 exit 7",
		"/run/ns/p/other?cmd=ls":       `500 container not found ("other")`,
		"/run/ns/none/c?cmd=ls":        "404 pod does not exist",
		"/run/ns/p/another/c?cmd=true": "404 pod does not exist",
	} {
		code, text := post(t, f.client, f.server+path)
		if got := fmt.Sprintf("%d %s", code, text); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
