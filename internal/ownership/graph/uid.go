// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/binary"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// uid is the compact form of a types.UID: 16 bytes. API servers assign random UUIDs, which fit;
// uidTable assigns numbers to all other strings.
type uid [16]byte

// uidTable maps UIDs that are not canonical UUIDs to numbers. They are few: they come from
// references that never named an object, and from foreign API servers.
type uidTable struct {
	numbers map[types.UID]uint64
	strings map[uint64]types.UID
	last    uint64
}

// oddPrefix marks a numbered UID. Canonical UUIDs with this prefix are numbered too.
const oddPrefix = ^uint64(0)

// compact returns the compact form of id, and assigns a number to id if it needs one.
func (t *uidTable) compact(id types.UID) uid {
	if u, ok := t.find(id); ok {
		return u
	}
	if t.numbers == nil {
		t.numbers, t.strings = map[types.UID]uint64{}, map[uint64]types.UID{}
	}
	t.last++
	t.numbers[id], t.strings[t.last] = t.last, id
	return numbered(t.last)
}

// find returns the compact form of id. It assigns no number: it returns false for an id that needs
// a number and has none.
func (t *uidTable) find(id types.UID) (uid, bool) {
	if u, ok := parseUUID(string(id)); ok && binary.BigEndian.Uint64(u[:8]) != oddPrefix {
		return u, true
	}
	number, ok := t.numbers[id]
	return numbered(number), ok
}

// numbered returns the compact form of the UID with a number.
func numbered(number uint64) uid {
	var u uid
	binary.BigEndian.PutUint64(u[:8], oddPrefix)
	binary.BigEndian.PutUint64(u[8:], number)
	return u
}

// expand returns the UID whose compact form is u.
func (t *uidTable) expand(u uid) types.UID {
	if binary.BigEndian.Uint64(u[:8]) == oddPrefix {
		return t.strings[binary.BigEndian.Uint64(u[8:])]
	}
	var text [36]byte
	hex.Encode(text[0:8], u[0:4])
	hex.Encode(text[9:13], u[4:6])
	hex.Encode(text[14:18], u[6:8])
	hex.Encode(text[19:23], u[8:10])
	hex.Encode(text[24:36], u[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return types.UID(text[:])
}

// forget removes the number of u, if it has one. No node may use u any more.
func (t *uidTable) forget(u uid) {
	if binary.BigEndian.Uint64(u[:8]) != oddPrefix {
		return
	}
	number := binary.BigEndian.Uint64(u[8:])
	delete(t.numbers, t.strings[number])
	delete(t.strings, number)
}

// parseUUID parses the canonical form of RFC 9562: lower case, with hyphens. The API compares
// UIDs as strings, so any other spelling is a different UID.
func parseUUID(s string) (uid, bool) {
	var u uid
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	i := 0
	for pos := 0; pos < len(s); pos++ {
		switch pos {
		case 8, 13, 18, 23:
			continue
		}
		digit, ok := hexDigit(s[pos])
		if !ok {
			return u, false
		}
		u[i/2] = u[i/2]<<4 | digit
		i++
	}
	return u, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
