// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile follows configuration files of authentication and authorization. A valid
// change takes effect without a restart; an invalid one has no effect.
package configfile

import (
	"bytes"
	"context"
	"os"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
)

// interval is the interval at which a file is read if the kernel reports no changes.
const interval = time.Minute // as upstream

// Follow calls accept with each new content of the file, until ctx is done. If accept returns an
// error, Follow logs it and calls accept again after the next interval, because the cause may be
// outside of the file.
func Follow(ctx context.Context, path string, content []byte, accept func([]byte) error) {
	logger := klog.FromContext(ctx).WithValues("file", path)
	filesystem.WatchUntil(ctx, interval, path, func() {
		found, err := os.ReadFile(path)
		if err != nil {
			logger.Error(err, "Cannot read the configuration; the last one stays in use")
			return
		}
		if bytes.Equal(found, content) {
			return
		}
		if err := accept(found); err != nil {
			logger.Error(err, "Refused the new configuration; the last one stays in use")
			return
		}
		content = found
		logger.Info("The new configuration is in use")
	}, func(err error) { logger.Error(err, "Cannot watch the configuration; it is read once a minute") })
}
