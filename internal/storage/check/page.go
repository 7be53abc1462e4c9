// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"encoding/binary"
)

// page is a page of the database with its overflow pages.
type page struct {
	id      uint64
	content []byte
	// offset is the offset of the content in the file.
	offset int64

	// flags is the type of the page, and count the number of its entries. check sets them.
	flags uint16
	count int
}

// element is an entry of a leaf.
type element struct {
	key, value []byte
	bucket     bool // the value is a bucket
	// at is the offset of the value in the page.
	at int64
}

// check reads the header of the page, and checks that all entries are within the page, in order, and
// not less than least and less than below. A nil key is no limit. Only the root may be empty.
func (p *page) check(least, below []byte, root bool) error {
	if len(p.content) < headerSize {
		return brokenf(p.id, "it is too short")
	}
	p.flags, p.count = binary.NativeEndian.Uint16(p.content[8:]), int(binary.NativeEndian.Uint16(p.content[10:]))
	switch {
	case p.flags != leafFlag && p.flags != branchFlag:
		return brokenf(p.id, "it is not a page of entries (type %#x)", p.flags)
	case headerSize+p.count*elementSize > len(p.content):
		return brokenf(p.id, "it says that it has %d entries, more than it has room for", p.count)
	case p.count == 0 && (p.flags == branchFlag || !root):
		return brokenf(p.id, "it has no entries")
	}
	var last []byte
	for i := range p.count {
		key, err := p.key(i)
		switch {
		case err != nil:
			return err
		case i > 0 && bytes.Compare(last, key) >= 0:
			return brokenf(p.id, "its keys are not in order")
		case least != nil && bytes.Compare(key, least) < 0, below != nil && bytes.Compare(key, below) >= 0:
			return brokenf(p.id, "its keys do not belong there")
		}
		last = key
	}
	return nil
}

// key returns the key of an entry.
func (p *page) key(i int) ([]byte, error) {
	if p.flags == leafFlag {
		e, err := p.leafEntry(i)
		return e.key, err
	}
	at := headerSize + i*elementSize
	position, size := p.u32(at), p.u32(at+4)
	if size == 0 || uint64(at)+uint64(position)+uint64(size) > uint64(len(p.content)) {
		return nil, brokenf(p.id, "its entry %d is not within it", i)
	}
	return p.content[at+int(position):][:size], nil
}

// leafEntry returns an entry of a leaf.
func (p *page) leafEntry(i int) (element, error) {
	at := headerSize + i*elementSize
	flags, position, keySize, valueSize := p.u32(at), p.u32(at+4), p.u32(at+8), p.u32(at+12)
	end := uint64(at) + uint64(position) + uint64(keySize) + uint64(valueSize)
	if keySize == 0 || end > uint64(len(p.content)) || flags > bucketLeafFlag {
		return element{}, brokenf(p.id, "its entry %d is not within it", i)
	}
	key := p.content[at+int(position):][:keySize]
	begin := at + int(position) + int(keySize)
	return element{key, p.content[begin:][:valueSize], flags&bucketLeafFlag != 0, int64(begin)}, nil
}

// branchEntry returns an entry of a checked branch: a child page, and the least key on it.
func (p *page) branchEntry(i int) (child uint64, least []byte) {
	key, _ := p.key(i)
	return binary.NativeEndian.Uint64(p.content[headerSize+i*elementSize+8:]), key
}

func (p *page) u32(at int) uint32 { return binary.NativeEndian.Uint32(p.content[at:]) }
