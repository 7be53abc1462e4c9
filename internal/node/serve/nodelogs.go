// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// systemLogs is the directory of the node's own logs.
const systemLogs = "/var/log/"

// queryLimit limits how long a query of the node's logs may take.
const queryLimit = 30 * time.Second

// nodeLogs serves /logs/: the files of a directory, and the logs of the node's services (KEP-2258).
type nodeLogs struct {
	dir     string
	queries bool
	// journal runs journalctl with arguments.
	journal func(ctx context.Context, out io.Writer, args ...string) error
}

func (n nodeLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	files := http.StripPrefix("/logs", http.FileServer(http.Dir(n.dir)))
	if !n.queries {
		files.ServeHTTP(w, r)
		return
	}
	query, errs := parseNodeLogQuery(r.URL.Query())
	switch {
	case len(errs) > 0:
		fail(w, http.StatusBadRequest, errs.ToAggregate().Error())
		return
	case query == nil:
		files.ServeHTTP(w, r)
		return
	case strings.Trim(strings.TrimPrefix(r.URL.Path, "/logs"), "/") != "":
		fail(w, http.StatusNotAcceptable, "path not allowed in query mode")
		return
	}
	if errs := query.validate(n.dir); len(errs) > 0 {
		fail(w, http.StatusNotAcceptable, errs.ToAggregate().Error())
		return
	}
	if len(query.files) == 1 {
		r.URL.Path, r.URL.RawPath = "/logs/"+strings.TrimLeft(strings.ReplaceAll(query.files[0], `\`, "/"), "/"), ""
		files.ServeHTTP(w, r)
		return
	}
	n.services(w, r, query)
}

// services sends the logs of services. Once it has begun, it can report an error only in the text.
func (n nodeLogs) services(w http.ResponseWriter, r *http.Request, query *nodeLogQuery) {
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		defer func() { _ = compressed.Close() }()
		out = compressed
	}
	inJournal, inFiles := n.split(ctx, query.services)
	if len(inJournal) > 0 {
		if err := n.journal(ctx, out, query.journalArguments(inJournal)...); err != nil && !isExit(err) {
			fmt.Fprint(out, "\nerror: journal output not available\n")
		}
	}
	if len(inFiles) > 0 && query.hasOptions() {
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", inFiles)
		return
	}
	for _, service := range inFiles {
		n.copyFile(ctx, out, service)
	}
}

// split divides services into those that the journal has and the others.
func (n nodeLogs) split(ctx context.Context, services []string) (inJournal, inFiles []string) {
	var units strings.Builder
	err := n.journal(ctx, &units, "--field", "_SYSTEMD_UNIT")
	for _, service := range services {
		if err == nil && strings.Contains(units.String(), service+".service") {
			inJournal = append(inJournal, service)
			continue
		}
		inFiles = append(inFiles, service)
	}
	return inJournal, inFiles
}

// copyFile sends the log file of a service: the first of its usual names. The files cannot be outside of the directory.
func (n nodeLogs) copyFile(ctx context.Context, out io.Writer, service string) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		file, err := os.OpenInRoot(n.dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = copyRegular(ctx, out, file)
		}
		if errors.Is(err, errNoFile) {
			continue
		}
		if err != nil {
			fmt.Fprintf(out, "\nerror getting log for %s: %v\n", service, err)
		}
		return
	}
	fmt.Fprintf(out, "\nlog not found for %s\n", service)
}

// errNoFile reports that something is no regular file.
var errNoFile = errors.New("not a regular file")

func copyRegular(ctx context.Context, out io.Writer, file *os.File) error {
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errNoFile
	}
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer stop()
	_, err = io.Copy(out, file)
	return err
}

// journalctl runs the node's journalctl.
func journalctl(ctx context.Context, out io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, "journalctl", args...)
	command.Stdout, command.Stderr = out, out
	err := command.Run()
	if err != nil {
		klog.FromContext(ctx).V(2).Info("journalctl failed", "err", err)
	}
	return err
}

// isExit reports whether a command ran and failed by itself; its output has the reason.
func isExit(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}
