// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// The buckets of etcd (go.etcd.io/etcd/server/v3/storage/schema). If one is missing, etcd creates it
// empty, without an error.
const (
	keyBucket     = "key"
	metaBucket    = "meta"
	membersBucket = "members"
)

var neededBuckets = []string{keyBucket, metaBucket, membersBucket, "cluster", "lease"}

func databaseFile(dir string) string { return filepath.Join(dir, "member", "snap", "db") }
func logDir(dir string) string       { return filepath.Join(dir, "member", "wal") }

// Store checks the store in a directory that no process uses. Damage is in the report; an error means
// that the check itself failed. Objects are decoded if decode is set, or after an unclean stop.
func Store(ctx context.Context, dir string, decode bool) (report *Report, err error) {
	defer func() {
		if r := recover(); r != nil {
			report, err = nil, fmt.Errorf("the check of the store in %s failed: %v", dir, r)
		}
	}()
	c := &checker{ctx: ctx, dir: dir, report: &Report{Damage: []Damage{}}, latest: map[string]place{}}
	if c.record, err = ReadRecord(dir); err != nil {
		return nil, err
	}
	type result struct {
		log *writeAheadLog
		err error
	}
	read := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				read <- result{nil, &misplaced{logDir(dir), 0, fmt.Sprint(r)}}
			}
		}()
		log, err := readLog(ctx, logDir(dir))
		read <- result{log, err}
	}()
	fatal := c.database(decode)
	log := <-read
	if fatal == nil {
		fatal = c.found(log.err, logDir(dir))
	}
	if fatal == nil && log.err == nil {
		fatal = c.compare(log.log)
	}
	if fatal == nil {
		fatal = ctx.Err()
	}
	return c.report, fatal
}

// checker checks one store.
type checker struct {
	ctx    context.Context
	dir    string
	record *Record
	report *Report

	// sums are the checksums of the last clean stop; nil if there are none.
	sums *sums
	// rest is the checksum of all entries that are not versions of keys.
	rest uint32
	// consistent is the last log entry that the database has; members are the members in it.
	consistent uint64
	members    map[uint64]bool

	// absent is set if there is no database. etcd recreates it from a complete log.
	absent bool
	// latest has the place of the latest version of each object.
	latest map[string]place
	decode bool
	// newest is the last revision in the database.
	newest revision
}

// place is the place of a version in the database file.
type place struct {
	revision revision
	page, at int64
	size     int
}

// found adds an error to the report if it is damage, and returns it if the check failed.
func (c *checker) found(err error, file string) error {
	var page *broken
	var spot *misplaced
	switch {
	case err == nil:
	case errors.As(err, &page):
		c.report.add(Damage{File: file, Page: page.page, Problem: page.problem})
	case errors.As(err, &spot):
		c.report.add(Damage{File: spot.file, Offset: spot.offset, Problem: spot.problem})
	case errors.Is(err, fs.ErrNotExist):
		c.report.add(Damage{File: file, Problem: "it is missing"})
	default:
		return err
	}
	return nil
}

// database checks the database.
func (c *checker) database(decode bool) error {
	path := databaseFile(c.dir)
	db, notes, err := openDatabase(path)
	c.report.Notes = append(c.report.Notes, notes...)
	if errors.Is(err, fs.ErrNotExist) {
		c.absent = true
		return nil
	}
	if err != nil {
		return c.found(err, path)
	}
	defer db.file.Close()
	stopped := c.openSums()
	// Unchanged since the clean stop: any difference is damage.
	asStopped := stopped != nil && stopped.Transaction == db.meta.transaction
	c.decode = decode || !asStopped
	c.members = map[uint64]bool{}
	db.visit = c.entry
	var fatal error
	buckets := db.walk(c.ctx, func(err error) { fatal = errors.Join(fatal, c.found(err, path)) })
	if fatal != nil || c.ctx.Err() != nil {
		return errors.Join(fatal, c.ctx.Err())
	}
	whole := len(c.report.Damage) == 0
	for _, name := range neededBuckets {
		if whole && !buckets[name] {
			c.report.add(Damage{File: path, Problem: fmt.Sprintf("the bucket %q is missing", name)})
		}
	}
	c.report.Newest = int64(c.newest.main)
	if asStopped && whole {
		c.compareToStop(path, stopped)
	}
	if c.decode && fatal == nil {
		return c.objects(db)
	}
	return nil
}

// openSums opens the checksums of the last clean stop, if they can be used.
func (c *checker) openSums() *Stopped {
	if c.record == nil || c.record.Stopped == nil {
		return nil
	}
	var err error
	if c.sums, err = readSums(sumsFile(c.dir), c.record.Stopped.Sums); err != nil {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("the checksums of the last stop can't be used: %v", err))
		return nil
	}
	return c.record.Stopped
}

// compareToStop checks that the store still has all data of the clean stop.
func (c *checker) compareToStop(path string, stopped *Stopped) {
	c.sums.skipRest()
	switch {
	case c.sums.matched != stopped.Versions || c.report.Revisions != stopped.Versions:
		c.report.add(Damage{File: path, Problem: fmt.Sprintf("it had %d versions of keys at the last stop, and has %d of them now", stopped.Versions, c.sums.matched)})
	case c.rest != stopped.Rest:
		c.report.add(Damage{File: path, Problem: "the data that etcd keeps besides keys (its buckets meta, members, lease and others) has changed since the last stop"})
	default:
		c.report.Clean = true
	}
}

// entry checks an entry of a bucket.
func (c *checker) entry(e entry) {
	path := databaseFile(c.dir)
	switch string(e.bucket) {
	case keyBucket:
		c.version(e)
		return
	case metaBucket:
		if string(e.key) == "consistent_index" {
			if len(e.value) != 8 {
				c.report.add(Damage{File: path, Page: e.page, Problem: "the consistent index is not a number"})
			} else {
				c.consistent = binary.BigEndian.Uint64(e.value)
			}
		}
		if string(e.key) == "confState" && !json.Valid(e.value) {
			c.report.add(Damage{File: path, Page: e.page, Problem: "the state of the configuration is not JSON"})
		}
	case membersBucket:
		id, err := strconv.ParseUint(string(e.key), 16, 64)
		if err != nil || !json.Valid(e.value) {
			c.report.add(Damage{File: path, Page: e.page, Problem: "a member of the cluster can't be decoded"})
		}
		c.members[id] = true
	}
	c.rest = restSum(c.rest, e)
}

// version checks a version of a key.
func (c *checker) version(e entry) {
	path := databaseFile(c.dir)
	c.report.Revisions++
	r, tombstone, err := revisionOf(e.key)
	if err != nil {
		c.report.add(Damage{File: path, Page: e.page, Problem: err.Error()})
		return
	}
	c.newest = r
	var known *sum
	if c.sums != nil {
		known = c.sums.find(r)
	}
	if known != nil && known.value == crc32.Checksum(e.value, castagnoli) {
		if c.decode && !tombstone {
			if v, err := readVersion(e); err == nil {
				c.remember(v, e)
			}
		} else if c.decode {
			c.forget(e)
		}
		return
	}
	v, err := readVersion(e)
	if err != nil {
		c.report.add(Damage{File: path, Page: e.page, Revision: int64(r.main), Problem: "the version can't be decoded: " + firstLine(err)})
		return
	}
	if known != nil {
		sameKey := known.key == v.sum().key
		problem := "it is not what was written: its checksum is wrong"
		if !sameKey {
			problem += ", that of its key too"
		}
		c.report.add(Damage{File: path, Page: e.page, Key: string(v.kv.GetKey()), Revision: int64(r.main), Problem: problem, Droppable: sameKey && isObject(string(v.kv.GetKey()))})
	}
	c.remember(v, e)
}

// remember stores the place of the latest version of an object, which is decoded later.
func (c *checker) remember(v *version, e entry) {
	key := string(v.kv.GetKey())
	if !c.decode || !isObject(key) {
		return
	}
	if v.tombstone {
		delete(c.latest, key)
		return
	}
	c.latest[key] = place{revision: v.revision, page: e.page, at: e.at, size: len(e.value)}
}

// forget removes the place of a deleted object.
func (c *checker) forget(e entry) {
	if v, err := readVersion(e); err == nil {
		delete(c.latest, string(v.kv.GetKey()))
	}
}

// compare checks the log, the database and the record against each other.
func (c *checker) compare(log *writeAheadLog) error {
	c.report.Entry = log.last
	if len(c.report.Damage) > 0 && !c.report.Droppable() {
		return nil // results about an unreadable database would mislead
	}
	path := databaseFile(c.dir)
	if c.absent && !log.whole() {
		c.report.add(Damage{File: path, Problem: "the database is missing"})
		return nil
	}
	if err := log.against(path, c.consistent); err != nil {
		return c.found(err, path)
	}
	if c.absent {
		c.report.Notes = append(c.report.Notes, path+": the database is missing; it is made again from the log, which is whole")
	}
	if log.torn != nil {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("%s, offset %d: the last write was not finished", log.endFile, log.end))
	}
	if !c.absent && !c.members[log.node] {
		c.report.add(Damage{File: path, Problem: fmt.Sprintf("member %x, whose log this is, is not in the database", log.node)})
	}
	if c.record != nil && c.record.Entry > log.last {
		c.report.add(Damage{File: log.endFile, Offset: log.end, Problem: fmt.Sprintf(
			"the store ends with log entry %d, but had entry %d at %s: it was replaced by an older one, or its log was cut (if that was you, restoring a backup: remove %s)",
			log.last, c.record.Entry, c.record.Time.UTC().Format(time.RFC3339), recordFile(c.dir))})
	}
	return nil
}

// objects decodes the latest version of each object.
func (c *checker) objects(db *database) error {
	var buffer []byte
	damaged := map[string]bool{}
	for _, d := range c.report.Damage {
		damaged[d.Key] = true
	}
	for key, at := range c.latest {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if cap(buffer) < at.size {
			buffer = make([]byte, at.size)
		}
		if _, err := db.file.ReadAt(buffer[:at.size], at.at); err != nil {
			return err
		}
		kv := &mvccpb.KeyValue{}
		if err := proto.Unmarshal(buffer[:at.size], kv); err != nil {
			return err
		}
		switch err := decodable(key, kv.GetValue()); {
		case errors.Is(err, errEncrypted):
			c.report.Encrypted++
		case err != nil && !damaged[key]:
			c.report.add(Damage{File: db.path, Page: at.page, Key: key, Revision: int64(at.revision.main), Problem: "the object can't be decoded: " + firstLine(err), Droppable: true})
		default:
			c.report.Objects++
		}
	}
	return nil
}

// RestoredRevisions is by how much the revision grows in a store that is restored from a snapshot. Clients that have seen states after
// the snapshot must not take what is written from now on for older states: all that was written in between must have had a
// smaller revision. etcd recommends this number.
const RestoredRevisions = 1_000_000_000

// version is a version of a key.
type version struct {
	revision
	tombstone bool
	kv        *mvccpb.KeyValue
	stored    entry
}

// readVersion decodes a version.
func readVersion(e entry) (*version, error) {
	r, tombstone, err := revisionOf(e.key)
	if err != nil {
		return nil, err
	}
	v := &version{revision: r, tombstone: tombstone, kv: &mvccpb.KeyValue{}, stored: e}
	if len(e.value) == 0 && r.main > RestoredRevisions {
		return v, nil // what a restore writes to set the revision
	}
	if err := proto.Unmarshal(e.value, v.kv); err != nil {
		return nil, err
	}
	switch kv := v.kv; {
	case len(kv.GetKey()) == 0:
		return nil, errors.New("it has no key")
	case tombstone:
	case kv.GetModRevision() != int64(r.main):
		return nil, fmt.Errorf("it says that its revision is %d", kv.GetModRevision())
	case kv.GetCreateRevision() > kv.GetModRevision() || kv.GetCreateRevision() < 1 || kv.GetVersion() < 1:
		return nil, errors.New("it is older than the key")
	}
	return v, nil
}

func (v *version) sum() sum {
	key := crc32.Update(crc32.Checksum(v.stored.key, castagnoli), castagnoli, v.kv.GetKey())
	return sum{v.revision, key, crc32.Checksum(v.stored.value, castagnoli)}
}

// revisionOf reads the key of a version (go.etcd.io/etcd/server/v3/storage/mvcc.BucketKey).
func revisionOf(key []byte) (r revision, tombstone bool, err error) {
	if len(key) != 17 && (len(key) != 18 || key[17] != 't') || key[8] != '_' {
		return r, false, fmt.Errorf("%q is not a revision", bytes.ToValidUTF8(key, []byte("?")))
	}
	r = revision{binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[9:])}
	if r.main == 0 || r.main > 1<<62 || r.sub > 1<<62 {
		return r, false, fmt.Errorf("%d_%d is not a revision", r.main, r.sub)
	}
	return r, len(key) == 18, nil
}

// Exists reports whether there is a store in a directory.
func Exists(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, "member"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
