// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newNodeLogs returns the logs of a node with the files syslog, web.log and db/db.log, whose journal has kubelet.service.
func newNodeLogs(t *testing.T) nodeLogs {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "log")
	for name, text := range map[string]string{"log/syslog": "system\n", "log/web.log": "web\n", "log/db/db.log": "db\n", "secret": "secret\n"} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "outside")); err != nil {
		t.Fatal(err)
	}
	return nodeLogs{dir: dir, queries: true, journal: func(_ context.Context, out io.Writer, args ...string) error {
		if args[0] == "--field" {
			fmt.Fprintln(out, "kubelet.service")
			return nil
		}
		fmt.Fprintf(out, "journal %s\n", strings.Join(args, " "))
		return nil
	}}
}

func TestNodeLogs(t *testing.T) {
	logs := newNodeLogs(t)
	for _, tc := range []struct {
		url  string
		code int
		body string
	}{
		{"/logs/", 200, `<a href="syslog">syslog</a>`},
		{"/logs/syslog", 200, "system\n"},
		{"/logs/db/db.log", 200, "db\n"},
		{"/logs/none", 404, ""},
		{"/logs/?query=syslog", 200, "system\n"},
		{"/logs/?query=web", 200, "web\n"},
		{"/logs/?query=db", 200, "db\n"},
		{"/logs/?query=web&query=db", 200, "web\ndb\n"},
		{"/logs/?query=/web.log", 200, "web\n"},
		{"/logs/?query=/db/db.log", 200, "db\n"},
		{"/logs/?query=none", 200, "log not found for none"},
		{"/logs/?query=outside", 200, "error getting log for outside"},
		{"/logs/?query=/outside", 406, "query"},
		{"/logs/?query=../secret", 406, "query"},
		{"/logs/?query=web&tailLines=3", 200, "options present and query resolved to log files for [web]"},
		{"/logs/?query=kubelet", 200, "journal --utc --no-pager --output=short-precise --unit=kubelet\n"},
		{"/logs/?query=kubelet&tailLines=3&pattern=a.*b&boot=-1&sinceTime=2030-01-02T03:04:05Z&untilTime=2030-01-02T05:04:05%2B01:00", 200,
			"--since=2030-01-02 03:04:05 --until=2030-01-02 04:04:05 --pager-end --lines=3 --unit=kubelet --grep=a.*b --boot -1\n"},
		{"/logs/?query=", 400, "may not be empty"},
		{"/logs/?query=a&sinceTime=yesterday", 400, "sinceTime: Invalid value: \"yesterday\": invalid time format"},
		{"/logs/?query=a&tailLines=x", 400, "tailLines"},
		{"/logs/syslog?query=a", 406, "path not allowed in query mode"},
		{"/logs/?tailLines=3", 406, "query: Required value: cannot be empty with options"},
		{"/logs/?query=a&boot=1", 406, "boot: Invalid value: 1: must be less than 1"},
		{"/logs/?query=a&tailLines=100001", 406, "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive"},
		{"/logs/?query=a&pattern=(", 406, "pattern"},
		{"/logs/?query=a&sinceTime=2030-01-02T03:04:05Z&untilTime=2030-01-01T03:04:05Z", 406, "must be after `sinceTime`"},
		{"/logs/?query=a&query=/web.log", 406, "cannot specify a file and service"},
		{"/logs/?query=/syslog&query=/web.log", 406, "cannot specify more than one file"},
		{"/logs/?query=/web.log&tailLines=3", 406, "cannot specify file with options"},
		{"/logs/?query=a&query=b&query=c&query=d&query=e", 406, "must have at most 4 items"},
		{"/logs/?query=a%3Bb", 406, "input contains unsupported characters"},
		{"/logs/?query=" + strings.Repeat("a", 257), 406, "length must be less than 256"},
	} {
		w := httptest.NewRecorder()
		logs.ServeHTTP(w, httptest.NewRequest("GET", tc.url, nil))
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%s: %d %q, want %d %q", tc.url, w.Code, w.Body, tc.code, tc.body)
		}
		if strings.Contains(w.Body.String(), "secret\n") {
			t.Errorf("%s reads a file outside of the directory: %s", tc.url, w.Body)
		}
	}
}

// TestQueriesAreOff: without enableSystemLogQuery, a query is ignored.
func TestQueriesAreOff(t *testing.T) {
	logs := newNodeLogs(t)
	logs.queries = false
	w := httptest.NewRecorder()
	logs.ServeHTTP(w, httptest.NewRequest("GET", "/logs/?query=kubelet", nil))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "web.log") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func FuzzNodeLogQuery(f *testing.F) {
	f.Add("query=kubelet&tailLines=3&pattern=a")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		query, errs := parseNodeLogQuery(values)
		if query == nil || len(errs) > 0 || len(query.validate(t.TempDir())) > 0 {
			return
		}
		for _, argument := range query.journalArguments(query.services) {
			if unit, ok := strings.CutPrefix(argument, "--unit="); ok && strings.ContainsAny(unit, " ;|&$`'\"/\\\n") {
				t.Errorf("unsafe unit %q", unit)
			}
		}
	})
}
