// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
)

// failure is the fatal error of the embedded etcd.
type failure struct {
	reported chan error
	happened atomic.Bool
}

func newFailure() *failure { return &failure{reported: make(chan error, 1)} }

// newLogger returns a logger that writes to a file beside etcd's data and reports a fatal error
// to f. By default etcd would exit at once, without a message on the terminal.
func newLogger(path string, f *failure) *zap.Logger {
	file := zapcore.AddSync(&lumberjack.Logger{Filename: path, MaxSize: 10, MaxBackups: 1})
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, file, zap.WarnLevel), zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// OnWrite implements zapcore.CheckWriteHook: it reports the error and blocks the calling
// goroutine for good. So nothing that the goroutine has not written is ever acknowledged.
func (f *failure) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if f.happened.CompareAndSwap(false, true) {
		f.reported <- fmt.Errorf("the embedded etcd cannot continue: %s%s", entry.Message, cause(fields))
	}
	select {}
}

// cause returns the error among the fields of a log entry, if there is one, and what to do about a full disk.
func cause(fields []zapcore.Field) string {
	for _, f := range fields {
		err, ok := f.Interface.(error)
		switch {
		case !ok || f.Type != zapcore.ErrorType:
		case errors.Is(err, syscall.ENOSPC):
			return ": " + err.Error() + "; free space on this disk and start again"
		default:
			return ": " + err.Error()
		}
	}
	return ""
}
