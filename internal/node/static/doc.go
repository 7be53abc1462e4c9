// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package static runs static pods: pods that a directory, a file or a URL declares on the node, and not the API.
//
// [File] and [URL] are the sources. Each reports all of its pods whenever they may have changed. [Pods] compares them with
// the pods that run, and is for their workers what the API is for those of other pods: it stores their statuses, announces
// their deletion, and removes them once they have stopped. So a worker need not know where its pod comes from.
//
// A static pod never changes: the UID follows from the node, the source and the manifest, so a changed manifest is another
// pod with the same name. It starts when the former one is gone. The same holds for the pods of an earlier agent, which
// Pods finds in the runtime: they are adopted if their manifest is the same, and stopped otherwise.
//
// Package mirror shows static pods in the API.
package static
