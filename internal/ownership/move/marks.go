// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// markDomain and the UID of the original form the key of the annotation that holds a copy's
	// [mark]. The key contains the UID because controllers copy annotations to dependents (a
	// Deployment's to its ReplicaSets): a copied mark must not replace the dependent's own.
	markDomain = "move.ownership.kindred.dev/"
	// namespaceMark is set on namespaces that were created for a move. leavingMark is set at the
	// source on dependents that were not copied and are to be deleted after their owner, which is
	// deleted with the policy Orphan.
	namespaceMark = "ownership.kindred.dev/created-by-move"
	leavingMark   = "ownership.kindred.dev/leaves-with-move"
)

// manager is the field manager and user agent of a move.
const manager = "kindred-move"

// mark identifies a copy at the target until the move is complete.
type mark struct {
	// Move is the ID of the move; see [ID].
	Move string `json:"move"`
	// For names the copy that the mark belongs to; see markOf.
	For string `json:"for"`
	// from is the UID of the original, APIVersion its version, and Digest the digest of its
	// content; see digest.
	from       types.UID
	APIVersion string `json:"apiVersion"`
	Digest     string `json:"digest"`
	// Held is the merge patch that releases the copy.
	Held string `json:"held,omitempty"`
}

func (m mark) key() string { return markDomain + string(m.from) }

func (m mark) text() string {
	// Cannot fail: all fields are strings.
	text, _ := json.Marshal(m)
	return string(text)
}

// markOf returns an object's own mark, or the zero mark.
func markOf(object *unstructured.Unstructured) mark {
	for key, text := range object.GetAnnotations() {
		uid, found := strings.CutPrefix(key, markDomain)
		m := mark{from: types.UID(uid)}
		if found && json.Unmarshal([]byte(text), &m) == nil && m.For == short(object.GroupVersionKind().GroupKind(), object.GetName()) {
			return m
		}
	}
	return mark{}
}

// hasInheritedMark reports whether an object has a mark of a move that a controller copied from
// another object.
func hasInheritedMark(object *unstructured.Unstructured, move string) bool {
	for key, text := range object.GetAnnotations() {
		var m mark
		if strings.HasPrefix(key, markDomain) && json.Unmarshal([]byte(text), &m) == nil && m.Move == move && key != markOf(object).key() {
			return true
		}
	}
	return false
}

// isMark reports whether an annotation belongs to a move.
func isMark(annotation string) bool {
	return strings.HasPrefix(annotation, markDomain) || annotation == namespaceMark || annotation == leavingMark || annotation == pauseMark
}

// ID returns the ID of a move, which depends only on its roots, so that the same command continues
// the same move.
func ID(roots []types.UID) string {
	sorted := slices.Clone(roots)
	slices.Sort(sorted)
	hash := sha256.New()
	for _, uid := range slices.Compact(sorted) {
		_, _ = hash.Write([]byte(string(uid) + "\n"))
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
