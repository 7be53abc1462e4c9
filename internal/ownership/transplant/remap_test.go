// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package transplant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

const (
	oldUID   = "780e5339-d2d7-439f-b53c-6f1642aa2ae1"
	otherUID = "11111111-2222-3333-4444-555555555555"
	newUID   = "b00bb6bd-7733-4d6e-8b43-524f3aab6723"
)

func TestRemap(t *testing.T) {
	uids := map[types.UID]types.UID{oldUID: newUID}
	for _, tt := range []struct {
		name        string
		value, want any
	}{
		{"alone", oldUID, newUID},
		{"within JSON", `{"uid":"` + oldUID + `"}`, `{"uid":"` + newUID + `"}`},
		{"in a path, twice", "a/" + oldUID + "/" + oldUID, "a/" + newUID + "/" + newUID},
		{"a name that ends with it", "pvc-" + oldUID, "pvc-" + oldUID},
		{"a name that starts with it", oldUID + ".example.com", oldUID + ".example.com"},
		{"another", otherUID, otherUID},
		{"empty", "", ""},
		{"separators only", "::", "::"},
		{"between separators", ":" + oldUID + ":", ":" + newUID + ":"},
		{"beyond ASCII", "é" + oldUID + "é", "é" + newUID + "é"},
		{"a key", map[string]any{"owner/" + oldUID: true}, map[string]any{"owner/" + newUID: true}},
		{"deep", map[string]any{"a": []any{map[string]any{"uid": oldUID}, int64(1), nil, 1.5, false}},
			map[string]any{"a": []any{map[string]any{"uid": newUID}, int64(1), nil, 1.5, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Remap(tt.value, uids)); diff != "" {
				t.Error(diff)
			}
			found := map[types.UID]bool{}
			Mentions(tt.value, func(uid types.UID) bool { return uid == oldUID }, found)
			if changes := cmp.Diff(tt.value, tt.want) != ""; found[oldUID] != changes {
				t.Errorf("mentioned %v, replaced %v", found[oldUID], changes)
			}
		})
	}
}
