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

// endless is a size in megabytes that no file reaches.
const endless = math.MaxInt64 >> 20

// log is the backend of a log file. The library's own never closes its file: of each
// cluster that ends in a longer-lived process, a descriptor would stay.
type log struct {
	library.Backend
	file *file
}

// openLog makes the file that options name and a backend that writes to it as they say.
func openLog(o options.AuditLogOptions) (library.Backend, error) {
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, err
	}
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
		MaxSize: cmp.Or(o.MaxSize, endless), // 0 turns rotation off
	}}
	backend := waiting(pluginlog.NewBackend(f, o.Format, version), o.BatchOptions)
	if o.TruncateOptions.Enabled {
		backend = truncate.NewBackend(backend, o.TruncateOptions.TruncateConfig, version)
	}
	return log{backend, f}, nil
}

// waiting lets requests wait for their events to be written, or not, by the mode.
func waiting(backend library.Backend, o options.AuditBatchOptions) library.Backend {
	switch o.Mode {
	case options.ModeBlockingStrict:
		return backend
	case options.ModeBlocking:
		return lenient{backend}
	default:
		return buffered.NewBackend(backend, o.BatchConfig)
	}
}

// Shutdown writes what waits and closes the file.
func (l log) Shutdown() {
	l.Backend.Shutdown()
	l.file.close()
}

// lenient lets requests pass whose events could not be written.
type lenient struct{ library.Backend }

func (l lenient) ProcessEvents(events ...*auditinternal.Event) bool {
	l.Backend.ProcessEvents(events...)
	return true
}

// file is a log file that stays closed: the logger would open it anew for a late event.
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
	_ = f.rotated.Close() // all is written
}
