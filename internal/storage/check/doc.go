// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check finds damage in the files of a stopped embedded etcd. It only reads.
//
// etcd and bbolt trust their files: bbolt follows page numbers into a memory map without
// checking them, so that a damaged page makes it loop, panic or fault, and neither of them
// keeps a checksum of what the database holds. So the files are read here first, with
// bounds checked and each page visited once:
//
//   - the write-ahead log (log.go): each record by its checksum, in sequence;
//   - the database (database.go): the tree of pages, and each revision in it;
//   - one against the other: the log must continue where the database ends;
//   - both against the record (record.go) that Kindred writes beside them: checksums of all
//     revisions at the last clean stop, and the highest log entry that is known to be durable;
//   - after anything but a clean stop, and for "kindred check-store", the objects
//     (objects.go): the latest version of each must decode.
package check
