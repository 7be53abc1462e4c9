// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The format of bbolt's files, version 2 (go.etcd.io/bbolt/internal/common).
const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaSize    = 64

	headerSize  = 16
	elementSize = 16
	bucketSize  = 16

	branchFlag     = 0x01
	leafFlag       = 0x02
	bucketLeafFlag = 0x01

	// depthLimit is far above the depth of any tree: a branch has two children or more.
	depthLimit = 64
)

// root is a meta page of the database.
type root struct {
	pageSize    int64
	root        uint64
	pages       uint64 // number of pages
	transaction uint64
}

// database is a bbolt file that is read page by page, without a memory map.
type database struct {
	path string
	file *os.File
	size int64
	meta root
	// seen marks the visited pages.
	seen []bool
	// visit is called with each entry that is not a bucket. Its slices are valid during the call.
	visit func(e entry)
}

// entry is a key with its value in a bucket.
type entry struct {
	bucket, key, value []byte
	page               int64
	// at is the offset of the value in the file.
	at int64
}

// broken is the error for a damaged page.
type broken struct {
	page    int64
	problem string
}

func (b *broken) Error() string { return b.problem }

func brokenf(page uint64, format string, args ...any) error {
	return &broken{int64(page), fmt.Sprintf(format, args...)}
}

// openDatabase opens a database and reads its newest valid meta page.
func openDatabase(path string) (*database, []string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	db := &database{path: path, file: file, size: info.Size()}
	notes, err := db.readMeta()
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return db, notes, nil
}

// readMeta finds the two meta pages as bbolt does, and uses the newer valid one.
func (db *database) readMeta() (notes []string, err error) {
	first, firstErr := db.metaAt(0)
	secondErr := errors.New("it was not found")
	var second root
	if firstErr == nil {
		second, secondErr = db.metaAt(first.pageSize)
	} else {
		for size := int64(1 << 10); size <= 1<<24 && size < db.size && secondErr != nil; size <<= 1 {
			second, secondErr = db.metaAt(size)
		}
	}
	switch {
	case firstErr != nil && secondErr != nil:
		return nil, &broken{0, fmt.Sprintf("not a database, or both of its first pages are damaged (%v)", firstErr)}
	case firstErr != nil:
		notes = append(notes, fmt.Sprintf("%s: its first page is damaged (%v); the second is used", db.path, firstErr))
		db.meta = second
	case secondErr != nil:
		notes = append(notes, fmt.Sprintf("%s: its second page is damaged (%v); the first is used", db.path, secondErr))
		db.meta = first
	case first.transaction > second.transaction:
		db.meta = first
	default:
		db.meta = second
	}
	if existing := uint64(db.size / db.meta.pageSize); db.meta.pages > existing {
		return notes, brokenf(existing, "the file is truncated: it has %d of %d pages", existing, db.meta.pages)
	}
	db.seen = make([]bool, db.meta.pages)
	return notes, nil
}

// metaAt reads and verifies the meta page at an offset.
func (db *database) metaAt(offset int64) (root, error) {
	var page [headerSize + metaSize]byte
	if _, err := db.file.ReadAt(page[:], offset); err != nil {
		if errors.Is(err, io.EOF) {
			return root{}, errors.New("the file ends before it")
		}
		return root{}, err
	}
	m := page[headerSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(m[:metaSize-8])
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(m[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(m[at:]) }
	found := root{pageSize: int64(u32(8)), root: u64(16), pages: u64(40), transaction: u64(48)}
	switch {
	case u32(0) != metaMagic || u32(4) != metaVersion:
		return root{}, errors.New("it is not marked as bbolt's")
	case u64(56) != sum.Sum64():
		return root{}, errors.New("its checksum is wrong")
	case found.pageSize < 1<<10 || found.pageSize > 1<<24 || found.pages < 2:
		return root{}, errors.New("its page size is wrong")
	}
	return found, nil
}

// walk visits all entries of all buckets, and returns the names of the buckets. It passes damage to
// report, and skips the damaged parts.
func (db *database) walk(ctx context.Context, report func(error)) (buckets map[string]bool) {
	buckets = map[string]bool{}
	w := &walker{db: db, ctx: ctx, report: report}
	w.each = func(p *page, i int) {
		e, err := p.leafEntry(i)
		if err != nil {
			report(err)
			return
		}
		if !e.bucket || len(e.value) < bucketSize {
			report(brokenf(p.id, "%q is not a bucket", e.key))
			return
		}
		buckets[string(e.key)] = true
		db.walkBucket(w, p, e)
	}
	w.page(db.meta.root, nil, nil, 0)
	return buckets
}

// walkBucket visits the entries of a bucket. A small bucket is stored in its entry; others have pages
// of their own.
func (db *database) walkBucket(outer *walker, from *page, bucket element) {
	name := bytes.Clone(bucket.key)
	inner := &walker{db: db, ctx: outer.ctx, report: outer.report}
	inner.each = func(p *page, i int) {
		e, err := p.leafEntry(i)
		if err == nil && e.bucket {
			err = brokenf(p.id, "there is a bucket in the bucket %q", name)
		}
		if err != nil {
			outer.report(err)
			return
		}
		db.visit(entry{name, e.key, e.value, int64(p.id), p.offset + e.at})
	}
	root := binary.NativeEndian.Uint64(bucket.value)
	if root != 0 {
		inner.page(root, nil, nil, 0)
		return
	}
	inline := &page{id: from.id, content: bucket.value[bucketSize:], offset: from.offset + bucket.at + bucketSize}
	if err := inline.check(nil, nil, true); err != nil || inline.flags != leafFlag {
		outer.report(brokenf(from.id, "the bucket %q in it is damaged: %v", name, err))
		return
	}
	for i := range inline.count {
		inner.each(inline, i)
	}
}

// walker walks a tree of pages.
type walker struct {
	db     *database
	ctx    context.Context
	report func(error)
	// each is called for each entry of each leaf.
	each func(p *page, i int)
	// free are buffers for pages, one for each level.
	free [depthLimit][]byte
}

// page visits a page and the pages below it. Their keys must not be less than least, and must be less
// than below; nil is no limit.
func (w *walker) page(id uint64, least, below []byte, depth int) {
	if w.ctx.Err() != nil {
		return
	}
	p, err := w.read(id, depth)
	if err == nil {
		err = p.check(least, below, depth == 0)
	}
	if err != nil {
		w.report(err)
		return
	}
	for i := range p.count {
		if p.flags == leafFlag {
			w.each(p, i)
			continue
		}
		child, key := p.branchEntry(i)
		next := below
		if i+1 < p.count {
			_, next = p.branchEntry(i + 1)
		}
		w.page(child, key, next, depth+1)
	}
}

// read reads a page with its overflow pages, and marks them as seen. Each page may be read once.
func (w *walker) read(id uint64, depth int) (*page, error) {
	db := w.db
	switch {
	case depth == depthLimit:
		return nil, brokenf(id, "the tree of pages is too deep")
	case id < 2 || id >= db.meta.pages:
		return nil, brokenf(id, "there is no such page: there are %d", db.meta.pages)
	case db.seen[id]:
		return nil, brokenf(id, "it is part of the database twice")
	}
	offset := int64(id) * db.meta.pageSize
	header, err := w.readAt(depth, offset, db.meta.pageSize)
	if err != nil {
		return nil, brokenf(id, "%v", err)
	}
	if got := binary.NativeEndian.Uint64(header); got != id {
		return nil, brokenf(id, "it says that it is page %d", got)
	}
	overflow := uint64(binary.NativeEndian.Uint32(header[12:]))
	if overflow >= db.meta.pages-id {
		return nil, brokenf(id, "it is longer than the file")
	}
	for i := id; i <= id+overflow; i++ {
		if db.seen[i] {
			return nil, brokenf(i, "it is part of the database twice")
		}
		db.seen[i] = true
	}
	content := header
	if overflow > 0 {
		if content, err = w.readAt(depth, offset, int64(overflow+1)*db.meta.pageSize); err != nil {
			return nil, brokenf(id, "%v", err)
		}
	}
	return &page{id: id, content: content, offset: offset}, nil
}

func (w *walker) readAt(depth int, offset, size int64) ([]byte, error) {
	if int64(cap(w.free[depth])) < size {
		w.free[depth] = make([]byte, size)
	}
	buffer := w.free[depth][:size]
	_, err := w.db.file.ReadAt(buffer, offset)
	return buffer, err
}
