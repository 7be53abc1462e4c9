// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile follows the files that say who may come in: a change takes
// effect without a restart, and one that is wrong changes nothing.
package configfile

import (
	"bytes"
	"context"
	"os"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
)

// interval is how often a file is looked at where the kernel tells nothing.
const interval = time.Minute // as upstream's

// Follow hands each new content of the file to accept, until ctx is done. What
// accept refuses is logged, and offered again at the next look at the file: the
// reason may lie elsewhere.
func Follow(ctx context.Context, path string, content []byte, accept func([]byte) error) {
	logger := klog.FromContext(ctx).WithValues("file", path)
	filesystem.WatchUntil(ctx, interval, path, func() {
		found, err := os.ReadFile(path)
		if err != nil {
			logger.Error(err, "The configuration cannot be read; the last one holds")
			return
		}
		if bytes.Equal(found, content) {
			return
		}
		if err := accept(found); err != nil {
			logger.Error(err, "The new configuration is not used; the last one holds")
			return
		}
		content = found
		logger.Info("The new configuration holds")
	}, func(err error) { logger.Error(err, "The configuration is not watched; it is read each minute") })
}
