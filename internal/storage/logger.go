// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
)

// newLogger writes what etcd has to say to a file beside its data, and hands a
// fatal error to the process: etcd would exit at once, without a word on the
// terminal.
func newLogger(path string, failed chan<- error) *zap.Logger {
	file := zapcore.AddSync(&lumberjack.Logger{Filename: path, MaxSize: 10, MaxBackups: 1})
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, file, zap.WarnLevel),
		zap.WithFatalHook(fatalHook{failed}), zap.WithPanicHook(fatalHook{failed}))
}

// fatalHook reports the error and stops the goroutine that met it, for it must
// not go on; nothing it holds is acknowledged.
type fatalHook struct{ failed chan<- error }

func (h fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := fmt.Errorf("the embedded etcd cannot go on: %s%s", entry.Message, cause(fields))
	select {
	case h.failed <- err:
	default:
	}
	select {}
}

// cause is the error among the fields of a log entry, if there is one.
func cause(fields []zapcore.Field) string {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			return ": " + err.Error()
		}
	}
	return ""
}
