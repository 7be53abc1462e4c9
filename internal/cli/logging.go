// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"flag"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// logLimit is how large the log may grow, in megabytes, before it is rotated.
const logLimit = 20

// logTo sends the libraries' logs to a file in the data directory, to keep the terminal for the
// user. It is the only place that sets the libraries' global loggers, which only the binary may do.
// KINDRED_LOG_LEVEL is klog's -v.
func logTo(dataDir string) (func(), error) {
	dir := filepath.Join(dataDir, "logs")
	file := &lumberjack.Logger{Filename: filepath.Join(dir, "kindred.log"), MaxSize: logLimit, MaxBackups: 2}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	settings := map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "alsologtostderr": "false", "one_output": "true", "v": "0"}
	if level := os.Getenv("KINDRED_LOG_LEVEL"); level != "" {
		settings["v"] = level
	}
	for name, value := range settings {
		if err := flags.Set(name, value); err != nil {
			return nil, usagef("KINDRED_LOG_LEVEL=%s: %v", value, err)
		}
	}
	klog.SetOutput(lazy{file})
	log.SetOutput(lazy{file})
	slog.SetDefault(slog.New(slog.NewTextHandler(lazy{file}, nil)))
	ctrllog.SetLogger(logr.FromContextOrDiscard(klog.NewContext(context.Background(), klog.Background())))
	return func() { klog.Flush(); _ = file.Close() }, nil
}

// lazy writes to the file, but never creates the data directory: the cluster checks first whether
// it may use that.
type lazy struct{ file *lumberjack.Logger }

var _ io.Writer = lazy{}

func (l lazy) Write(p []byte) (int, error) {
	if _, err := os.Stat(filepath.Dir(filepath.Dir(l.file.Filename))); err != nil {
		return len(p), nil
	}
	return l.file.Write(p)
}
