// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// writeAheadLog is what the write-ahead log says.
type writeAheadLog struct {
	dir string
	// first and last are the entries that it has; last is one below first if it has none.
	first, last uint64
	// committed is the last entry that is known to be committed.
	committed uint64
	// snapshots are the entries up to which the database was certainly written.
	snapshots []uint64
	metadata  []byte
	node      uint64
	// end is where the valid part of the last file ends.
	end     int64
	endFile string
	// torn is set if what follows is no record: a write that a crash cut short, or damage.
	torn error

	sum uint32
}

// segment is the name of a file of the log: its number, and the first entry in it.
type segment struct {
	name          string
	number, first uint64
}

// readLog reads and checks all records.
func readLog(ctx context.Context, dir string) (*writeAheadLog, error) {
	l := &writeAheadLog{dir: dir}
	segments, err := l.segments()
	if err != nil {
		return nil, err
	}
	for i, s := range segments {
		if err := l.read(ctx, s, i == len(segments)-1); err != nil {
			return nil, err
		}
	}
	return l, l.verify(segments)
}

// misplaced is damage at a place in a file.
type misplaced struct {
	file    string
	offset  int64
	problem string
}

func (m *misplaced) Error() string { return m.problem }

func (l *writeAheadLog) segments() ([]segment, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var found []segment
	for _, entry := range entries {
		s := segment{name: entry.Name()}
		if n, _ := fmt.Sscanf(s.name, "%016x-%016x.wal", &s.number, &s.first); n == 2 && s.name == fmt.Sprintf("%016x-%016x.wal", s.number, s.first) {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil, &misplaced{l.dir, 0, "the write-ahead log has no files"}
	}
	slices.SortFunc(found, func(a, b segment) int { return int(a.number) - int(b.number) })
	for i := range found[1:] {
		if found[i+1].number != found[i].number+1 || found[i+1].first < found[i].first {
			return nil, &misplaced{filepath.Join(l.dir, found[i+1].name), 0, "the file before it is missing"}
		}
	}
	return found, nil
}

// read reads the records of one file. What follows the last valid one in the last file may be
// a write that was never finished: etcd cuts it off, and the caller decides whether something
// is missing then.
func (l *writeAheadLog) read(ctx context.Context, s segment, latest bool) error {
	path := filepath.Join(l.dir, s.name)
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(file))
	records := 0
	for record := (&walpb.Record{}); ; records++ {
		at := decoder.LastOffset()
		err := decoder.Decode(record)
		if errors.Is(err, io.EOF) || latest && errors.Is(err, io.ErrUnexpectedEOF) {
			l.end, l.endFile, l.torn = at, path, nil
			if !errors.Is(err, io.EOF) {
				l.torn = err
			}
			break
		}
		if err == nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = l.take(record, decoder, records == 0)
		}
		if err != nil {
			return &misplaced{path, at, fmt.Sprintf("record %d is damaged: %s", records, firstLine(err))}
		}
	}
	l.sum = decoder.LastCRC()
	if records < 2 {
		return &misplaced{path, 0, "the file does not begin with the records of a log"}
	}
	return nil
}

// take takes one record.
func (l *writeAheadLog) take(record *walpb.Record, decoder wal.Decoder, begins bool) error {
	if begins && record.GetType() != wal.CrcType {
		return errors.New("a file must begin with the checksum of the one before")
	}
	switch record.GetType() {
	case wal.CrcType:
		before := decoder.LastCRC()
		if begins {
			before = l.sum
		}
		if before != 0 && record.GetCrc() != before {
			return errors.New("the checksum of what is before it is wrong")
		}
		decoder.UpdateCRC(record.GetCrc())
	case wal.MetadataType:
		if l.metadata != nil && !bytes.Equal(l.metadata, record.GetData()) {
			return errors.New("it is of another store")
		}
		l.metadata = bytes.Clone(record.GetData())
		var metadata etcdserverpb.Metadata
		if err := proto.Unmarshal(l.metadata, &metadata); err != nil {
			return err
		}
		l.node = metadata.GetNodeID()
	case wal.EntryType:
		return l.takeEntry(record.GetData())
	case wal.StateType:
		var state raftpb.HardState
		if err := proto.Unmarshal(record.GetData(), &state); err != nil {
			return err
		}
		l.committed = state.GetCommit()
	case wal.SnapshotType:
		var snapshot walpb.Snapshot
		if err := proto.Unmarshal(record.GetData(), &snapshot); err != nil {
			return err
		}
		l.snapshots = append(l.snapshots, snapshot.GetIndex())
	default:
		return fmt.Errorf("there are no records of type %d", record.GetType())
	}
	return nil
}

func (l *writeAheadLog) takeEntry(data []byte) error {
	var entry raftpb.Entry
	if err := proto.Unmarshal(data, &entry); err != nil {
		return err
	}
	index := entry.GetIndex()
	if l.first == 0 {
		l.first = index
	} else if index > l.last+1 {
		return fmt.Errorf("it is entry %d, and the one before is entry %d", index, l.last)
	}
	l.last = index
	return nil
}

// verify returns an error if the log as a whole is inconsistent.
func (l *writeAheadLog) verify(segments []segment) error {
	first := filepath.Join(l.dir, segments[0].name)
	switch {
	case l.metadata == nil:
		return &misplaced{first, 0, "it has no metadata record"}
	case l.first == 0:
		return &misplaced{l.endFile, l.end, "the log has no entries"}
	case l.committed > l.last:
		return &misplaced{l.endFile, l.end, fmt.Sprintf("the log ends with entry %d, and entry %d was committed", l.last, l.committed)}
	case l.snapshot() == 0 && (segments[0].first > 0 || l.first > 1):
		return &misplaced{first, 0, "the beginning of the log is missing"}
	}
	return nil
}

// snapshot returns the entry up to which etcd does not read the log.
func (l *writeAheadLog) snapshot() uint64 {
	var latest uint64
	for _, index := range l.snapshots {
		if index <= l.committed {
			latest = index
		}
	}
	return latest
}

// whole reports whether the log has everything that was ever written.
func (l *writeAheadLog) whole() bool { return l.first == 1 && l.snapshot() == 0 }

// against compares the log with the database, which has everything up to an entry.
func (l *writeAheadLog) against(database string, consistent uint64) error {
	switch snapshot := l.snapshot(); {
	case consistent > l.last:
		problem := fmt.Sprintf("the log ends with entry %d, but the database has entry %d: the log was cut, or is older than the database", l.last, consistent)
		if l.torn != nil {
			problem += fmt.Sprintf(" (%s)", firstLine(l.torn))
		}
		return &misplaced{l.endFile, l.end, problem}
	case consistent < snapshot:
		return &misplaced{database, 0, fmt.Sprintf("the database ends with entry %d, but had entry %d when the log went on: it is older than the log", consistent, snapshot)}
	case consistent+1 < l.first:
		return &misplaced{database, 0, fmt.Sprintf("the database ends with entry %d, and the log begins with entry %d: it is older than the log", consistent, l.first)}
	}
	return nil
}

func firstLine(err error) string {
	text, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return string(text)
}
