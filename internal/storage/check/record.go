// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kindred-project/kindred/internal/durable"
)

// Record is what Kindred notes about a store outside of it. It tells a store that was replaced
// by an older copy from one that is up to date.
type Record struct {
	Time time.Time `json:"time"`
	// Entry is an entry of the log that was durable at that time.
	Entry uint64 `json:"entry"`
	// Stopped is how the last clean stop left the database; nil before the first.
	Stopped *Stopped `json:"stopped,omitempty"`
}

// Stopped is the state of the database at a clean stop.
type Stopped struct {
	// Transaction is the last of the database: as long as it is, nothing was written since.
	Transaction uint64 `json:"transaction"`
	// Versions is how many versions of keys there are, Sums the checksum of the file of
	// theirs, and Rest that of all that is beside them.
	Versions int    `json:"versions"`
	Sums     uint32 `json:"sums"`
	Rest     uint32 `json:"rest"`
}

func recordFile(dir string) string { return filepath.Join(dir, "record") }
func sumsFile(dir string) string   { return filepath.Join(dir, "sums") }

// ReadRecord reads the record of a store; nil if there is none, or it is damaged itself.
func ReadRecord(dir string) (*Record, error) {
	text, err := os.ReadFile(recordFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, nil
	}
	return &r, nil
}

// Note records that an entry of the log is durable. What was recorded of the last clean stop
// remains true of the versions that are still there.
func Note(dir string, entry uint64, now time.Time) error {
	r, err := ReadRecord(dir)
	if err != nil {
		return err
	}
	if r == nil {
		r = &Record{}
	}
	r.Entry, r.Time = entry, now
	return r.write(dir)
}

// NoteStop records how a clean stop left the store, whose log ends with an entry. It reads the
// whole database.
func NoteStop(ctx context.Context, dir string, entry uint64, now time.Time) error {
	var stopped *Stopped
	err := durable.Write(sumsFile(dir), 0o600, func(w io.Writer) (err error) {
		out := newSumsWriter(w)
		if stopped, err = takeSums(ctx, dir, out); err != nil {
			return err
		}
		stopped.Sums, err = out.finish()
		return err
	})
	if err != nil {
		return err
	}
	r := &Record{Time: now, Entry: entry, Stopped: stopped}
	return r.write(dir)
}

// takeSums writes the sums of all versions.
func takeSums(ctx context.Context, dir string, out *sumsWriter) (*Stopped, error) {
	db, _, err := openDatabase(databaseFile(dir))
	if err != nil {
		return nil, err
	}
	defer db.file.Close()
	stopped := &Stopped{Transaction: db.meta.transaction}
	var failed error
	db.visit = func(e entry) {
		if string(e.bucket) != keyBucket {
			stopped.Rest = restSum(stopped.Rest, e)
			return
		}
		v, err := readVersion(e)
		if err == nil {
			stopped.Versions++
			err = out.add(v.sum())
		}
		failed = errors.Join(failed, err)
	}
	db.walk(ctx, func(err error) { failed = errors.Join(failed, err) })
	return stopped, errors.Join(failed, ctx.Err())
}

// restSum adds an entry that is no version of a key to a checksum.
func restSum(sum uint32, e entry) uint32 {
	for _, part := range [][]byte{e.bucket, e.key, e.value} {
		sum = crc32.Update(sum, castagnoli, part)
		sum = crc32.Update(sum, castagnoli, []byte{0})
	}
	return sum
}

func (r *Record) write(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.WriteFile(recordFile(dir), append(text, '\n'), 0o600)
}

// MissingError is the refusal to start without a store where one was.
type MissingError struct {
	// Dir is the directory of the store, and Seen when it was last known to be there.
	Dir  string
	Seen time.Time
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the store in %s is missing, and was there at %s; mount the disk that it is on, or restore it from a backup; to start with an empty cluster, remove everything with \"kindred reset\"",
		e.Dir, e.Seen.UTC().Format(time.RFC3339))
}

// Missing returns a [MissingError] if there is a record of a store, and the store is gone.
func Missing(dir string) error {
	record, err := ReadRecord(dir)
	if err != nil || record == nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, "member")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &MissingError{dir, record.Time}
}
