// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package transplant

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Remap replaces UIDs anywhere in a JSON value, in values and in keys, by their counterparts in
// uids. Other UIDs stay.
//
// A UID is replaced only as a whole word: delimited by characters that names cannot contain. So
// owner references, claimRef.uid, targetRef.uid, the labels of Jobs and UIDs in JSON within an
// annotation are replaced, while a name that contains a UID ("pvc-<uid>") stays, because the
// object with that name keeps it.
func Remap(value any, uids map[types.UID]types.UID) any {
	switch v := value.(type) {
	case map[string]any:
		mapped := make(map[string]any, len(v))
		for key, item := range v {
			mapped[remapWords(key, uids)] = Remap(item, uids)
		}
		return mapped
	case []any:
		mapped := make([]any, len(v))
		for i := range v {
			mapped[i] = Remap(v[i], uids)
		}
		return mapped
	case string:
		return remapWords(v, uids)
	default:
		return value
	}
}

func remapWords(text string, uids map[types.UID]types.UID) string {
	var mapped strings.Builder
	for rest := text; len(rest) > 0; {
		var word string
		word, rest = splitWord(rest)
		if uid, found := uids[types.UID(word)]; found {
			word = string(uid)
		}
		mapped.WriteString(word)
		gap := runOf(rest, false)
		mapped.WriteString(rest[:gap])
		rest = rest[gap:]
	}
	return mapped.String()
}

// splitWord splits a text after its first word.
func splitWord(text string) (word, rest string) {
	n := runOf(text, true)
	return text[:n], text[n:]
}

// runOf returns the number of bytes at the start of a text that can, or cannot, be in names.
func runOf(text string, ofNames bool) int {
	for i := range len(text) {
		if inNames(text[i]) != ofNames {
			return i
		}
	}
	return len(text)
}

// inNames reports whether a name or UID may contain a byte.
func inNames(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '.' || b == '_'
}

// Mentions adds to found the UIDs in a JSON value for which of returns true. It recognizes the
// same words as Remap.
func Mentions(value any, of func(types.UID) bool, found map[types.UID]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			Mentions(key, of, found)
			Mentions(item, of, found)
		}
	case []any:
		for i := range v {
			Mentions(v[i], of, found)
		}
	case string:
		for rest := v; len(rest) > 0; {
			var word string
			word, rest = splitWord(rest)
			if word != "" && of(types.UID(word)) {
				found[types.UID(word)] = true
			}
			rest = rest[runOf(rest, false):]
		}
	}
}
