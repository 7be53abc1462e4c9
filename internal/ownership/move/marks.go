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
	// markDomain and the UID of the object at the source make the annotation that is an
	// object's [mark] at the target. The UID is in the name because controllers hand on
	// annotations (a Deployment's are on its ReplicaSets as well): what is handed on must
	// not take the place of the receiver's own.
	markDomain = "move.ownership.kindred.dev/"
	// namespaceMark is on namespaces that were created for a move, leavingMark on objects of
	// the source that go without having been copied, while their owner goes without them.
	namespaceMark = "ownership.kindred.dev/created-by-move"
	leavingMark   = "ownership.kindred.dev/leaves-with-move"
)

// manager is the name under which objects are written.
const manager = "kindred-move"

// mark is what an object at the target says of itself, from its creation until the move is
// over.
type mark struct {
	// Move is the move that the object belongs to: see [ID].
	Move string `json:"move"`
	// For is the object whose mark this is: see markOf.
	For string `json:"for"`
	// from is the UID of the object that it was made from, of this APIVersion and content:
	// see digest.
	from       types.UID
	APIVersion string `json:"apiVersion"`
	Digest     string `json:"digest"`
	// Held is the merge patch that ends its hold.
	Held string `json:"held,omitempty"`
}

func (m mark) key() string { return markDomain + string(m.from) }

func (m mark) text() string {
	// Cannot fail: it is made of strings.
	text, _ := json.Marshal(m)
	return string(text)
}

// markOf is an object's own mark. Without one it is the zero mark.
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

// handedOn reports whether an object has a mark of a move that is another object's.
func handedOn(object *unstructured.Unstructured, move string) bool {
	for key, text := range object.GetAnnotations() {
		var m mark
		if strings.HasPrefix(key, markDomain) && json.Unmarshal([]byte(text), &m) == nil && m.Move == move && key != markOf(object).key() {
			return true
		}
	}
	return false
}

// isMark reports whether an annotation is ours, of this object or handed on.
func isMark(annotation string) bool {
	return strings.HasPrefix(annotation, markDomain) || annotation == namespaceMark || annotation == leavingMark
}

// ID names a move by its roots, so that who types the same command goes on with the same
// move.
func ID(roots []types.UID) string {
	sorted := slices.Clone(roots)
	slices.Sort(sorted)
	hash := sha256.New()
	for _, uid := range slices.Compact(sorted) {
		_, _ = hash.Write([]byte(string(uid) + "\n"))
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
