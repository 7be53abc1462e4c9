// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// revision is the etcd revision of a version of a key.
type revision struct{ main, sub uint64 }

func (r revision) before(o revision) bool {
	return r.main < o.main || r.main == o.main && r.sub < o.sub
}

// sum has the checksums of a version: key is that of its revision and key, value that of its value.
type sum struct {
	revision
	key, value uint32
}

// sumsMagic is the beginning of a file of checksums.
const sumsMagic = "kindred sums 1\n"

// sumsWriter writes the checksums of all versions, in order of revisions: about 11 bytes each.
type sumsWriter struct {
	out  *bufio.Writer
	hash hash.Hash32
	last revision
}

func newSumsWriter(to io.Writer) *sumsWriter {
	w := &sumsWriter{hash: crc32.New(castagnoli)}
	w.out = bufio.NewWriterSize(io.MultiWriter(to, w.hash), 1<<16)
	_, _ = w.out.WriteString(sumsMagic) // Flush in finish returns an error of this write.
	return w
}

// add writes the checksums of one version. Call it in order of revisions.
func (w *sumsWriter) add(s sum) error {
	encoded := binary.AppendUvarint(nil, s.main-w.last.main)
	encoded = binary.AppendUvarint(encoded, s.sub)
	encoded = binary.LittleEndian.AppendUint32(encoded, s.key)
	encoded = binary.LittleEndian.AppendUint32(encoded, s.value)
	w.last = s.revision
	_, err := w.out.Write(encoded)
	return err
}

// finish writes what is buffered and returns the checksum of all that was written.
func (w *sumsWriter) finish() (uint32, error) {
	err := w.out.Flush()
	return w.hash.Sum32(), err
}

// sums are the checksums of the last clean stop, read along with the database.
type sums struct {
	in   *bytes.Reader
	last revision
	next *sum
	// count is the number of checksums read, and matched the number of those that find returned.
	count, matched int
}

// readSums reads a file of checksums and verifies it by its own checksum.
func readSums(path string, want uint32) (*sums, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if got := crc32.Checksum(text, castagnoli); got != want || !bytes.HasPrefix(text, []byte(sumsMagic)) {
		return nil, fmt.Errorf("%s is damaged", path)
	}
	s := &sums{in: bytes.NewReader(text[len(sumsMagic):])}
	s.advance()
	return s, nil
}

// advance reads the next checksum. s.next is nil after the last one.
func (s *sums) advance() {
	s.next = nil
	main, err := binary.ReadUvarint(s.in)
	if err != nil {
		return
	}
	sub, err := binary.ReadUvarint(s.in)
	if err != nil {
		return
	}
	var both [8]byte
	if _, err := io.ReadFull(s.in, both[:]); err != nil {
		return
	}
	s.last = revision{s.last.main + main, sub}
	s.next = &sum{s.last, binary.LittleEndian.Uint32(both[:4]), binary.LittleEndian.Uint32(both[4:])}
	s.count++
}

// find returns the checksum of a version, or nil. Call it in order of revisions: it skips checksums of
// earlier revisions.
func (s *sums) find(r revision) *sum {
	for s.next != nil && s.next.before(r) {
		s.advance()
	}
	if s.next == nil || s.next.revision != r {
		return nil
	}
	found := s.next
	s.matched++
	s.advance()
	return found
}

// skipRest reads the remaining checksums, so that they are counted.
func (s *sums) skipRest() {
	for s.next != nil {
		s.advance()
	}
}
