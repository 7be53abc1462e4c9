// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCheckpoint(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]string{
		"/checkpoint/ns/missing/c":                "pod does not exist",
		"/checkpoint/ns/p/missing":                "container missing does not exist",
		"/checkpoint/ns/p/c?timeout=soon":         "cannot parse value of timeout parameter",
		"/checkpoint/ns/p/other":                  "checkpointing of ns/p/other failed (container other not found)",
		"/checkpoint/ns/p/c?timeout=13":           "checkpointing of ns/p/c failed (criu is missing)",
		"/checkpoint/ns/p/c?timeout=1&timeout=13": "checkpointing of ns/p/c failed (criu is missing)",
	} {
		code, body := post(t, f.client, f.server+path)
		wantCode := http.StatusNotFound
		if strings.HasPrefix(want, "checkpointing") {
			wantCode = http.StatusInternalServerError
		}
		if code != wantCode || body != want {
			t.Errorf("%s: %d %q, want %d %q", path, code, body, wantCode, want)
		}
	}
	code, body := post(t, f.client, f.server+"/checkpoint/ns/p/c")
	var answer struct{ Items []string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK || len(answer.Items) != 1 {
		t.Fatalf("%d %q: %v", code, body, err)
	}
	if path := answer.Items[0]; filepath.Dir(path) != f.checkpoints || !strings.HasPrefix(filepath.Base(path), "checkpoint-p_ns-c-") {
		t.Errorf("written to %s", path)
	}
	if content, err := os.ReadFile(answer.Items[0]); err != nil || string(content) != "id" {
		t.Errorf("the archive has %q: %v", content, err)
	}
}

func TestCheckpointIsASubresource(t *testing.T) {
	if got := subresourcesOf("/checkpoint/ns/p/c"); !slices.Equal(got, []string{"checkpoint"}) {
		t.Errorf("got %v", got)
	}
}
