// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the hashes of the OpenAPI documents instead of comparing them")

const hashesFile = "openapi/zz_generated.hashes.txt"

// documents returns the hash of each OpenAPI v3 document, by its path. A document's hash in the list must
// be the hash of its content, unless the list is about to be generated.
func documents(t *testing.T, s *testServer) map[string]string {
	t.Helper()
	var list struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	got := s.do(t, s.admin, http.MethodGet, "/openapi/v3", "")
	if err := json.Unmarshal([]byte(got.body), &list); err != nil {
		t.Fatalf("the list of documents (%d): %v", got.code, err)
	}
	hashes := map[string]string{}
	for root, document := range list.Paths {
		listed, err := url.Parse(document.ServerRelativeURL)
		if err != nil {
			t.Fatal(err)
		}
		got := s.do(t, s.admin, http.MethodGet, listed.Path, "")
		hash := strings.Trim(got.header.Get("Etag"), `"`)
		if got.code != http.StatusOK || hash == "" || !strings.HasPrefix(got.body, `{"openapi":"3.0.0"`) {
			t.Fatalf("GET %s: %d %.100q, hash %q", listed.Path, got.code, got.body, hash)
		}
		if listed.Query().Get("hash") != hash && !*update {
			t.Errorf("%s: the list has hash %q, its content %q", root, listed.Query().Get("hash"), hash)
		}
		hashes[root] = hash
	}
	return hashes
}

// TestHashesOfDocuments: the generated hashes are those of the documents.
func TestHashesOfDocuments(t *testing.T) {
	hashes := documents(t, own(t, func(*Config) {}))
	var lines strings.Builder
	for _, root := range slices.Sorted(maps.Keys(hashes)) {
		fmt.Fprintf(&lines, "%s %s\n", root, hashes[root])
	}
	if *update {
		if err := os.WriteFile(hashesFile, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	generated, err := os.ReadFile(hashesFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(generated), lines.String()); diff != "" {
		t.Errorf("the hashes of the OpenAPI documents are stale: run \"make generate\" (-generated +served):\n%s", diff)
	}
}

// TestDocumentsOfSelectedAPIs: the hashes are right although the documents differ from those of a server
// without --runtime-config.
func TestDocumentsOfSelectedAPIs(t *testing.T) {
	hashes := documents(t, own(t, func(c *Config) {
		c.RuntimeConfig = map[string]string{"autoscaling/v1": "false", "ownership.kindred.dev/v1alpha1/ownershiplints": "false", "apps/v1beta2/deployments": "true"}
	}))
	for root, want := range map[string]bool{"apis/apps/v1": true, "apis/apps/v1beta2": true, "apis/autoscaling/v1": false, "apis/autoscaling/v2": true} {
		if _, ok := hashes[root]; ok != want {
			t.Errorf("%s has a document: %v, should be %v", root, ok, want)
		}
	}
}
