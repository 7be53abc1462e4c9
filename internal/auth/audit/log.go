// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	library "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	pluginlog "k8s.io/apiserver/plugin/pkg/audit/log"
	"k8s.io/apiserver/plugin/pkg/audit/truncate"
)

// unlimited is a file size in megabytes that is never reached.
const unlimited = math.MaxInt64 >> 20

// log is the backend of a log file. The backend of k8s.io/apiserver never closes its file, so a
// process that outlives its clusters would leak descriptors.
type log struct {
	library.Backend
	file *file
}

// openLog opens the log file and returns a backend that writes to it as configured.
func openLog(o options.AuditLogOptions) (library.Backend, error) {
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, err
	}
	// The logger opens the file when it writes. Fail now if it cannot.
	probe, err := os.OpenFile(o.Path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := probe.Close(); err != nil {
		return nil, err
	}
	version, err := schema.ParseGroupVersion(o.GroupVersionString)
	if err != nil {
		return nil, err
	}
	f := &file{rotated: lumberjack.Logger{
		Filename: o.Path, MaxAge: o.MaxAge, MaxBackups: o.MaxBackups, Compress: o.Compress,
		MaxSize: cmp.Or(o.MaxSize, unlimited), // 0 disables rotation
	}}
	backend := withMode(pluginlog.NewBackend(f, o.Format, version), o.BatchOptions)
	if o.TruncateOptions.Enabled {
		backend = truncate.NewBackend(backend, o.TruncateOptions.TruncateConfig, version)
	}
	return log{backend, f}, nil
}

// withMode applies the mode: whether a request waits until its events are written, and whether it
// fails if they cannot be.
func withMode(backend library.Backend, o options.AuditBatchOptions) library.Backend {
	switch o.Mode {
	case options.ModeBlockingStrict:
		return backend
	case options.ModeBlocking:
		return lenient{backend}
	default:
		return buffered.NewBackend(backend, o.BatchConfig)
	}
}

// Shutdown writes pending events and closes the file.
func (l log) Shutdown() {
	l.Backend.Shutdown()
	l.file.close()
}

// lenient ignores errors: requests succeed even if their events cannot be written.
type lenient struct{ library.Backend }

func (l lenient) ProcessEvents(events ...*auditinternal.Event) bool {
	l.Backend.ProcessEvents(events...)
	return true
}

// file is a log file that refuses writes after close. The logger alone would reopen it if an event
// arrived late.
type file struct {
	mu      sync.Mutex
	closed  bool
	rotated lumberjack.Logger
}

func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, io.ErrClosedPipe
	}
	return f.rotated.Write(p)
}

func (f *file) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	_ = f.rotated.Close() // every event was written before
}
