// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
)

// open returns how many descriptors of a file this process has.
func open(t *testing.T, path string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(all) == 0 {
		t.Fatal("no descriptors", err)
	}
	count := 0
	for _, fd := range all {
		if target, err := os.Readlink(fd); err == nil && target == path {
			count++
		}
	}
	return count
}

// TestLogIsClosed: the log is closed with its server, and a late event does not reopen it.
func TestLogIsClosed(t *testing.T) {
	event := func(verb string) *auditinternal.Event {
		return &auditinternal.Event{AuditID: "id", Verb: verb, Level: auditinternal.LevelMetadata, Stage: auditinternal.StageResponseComplete}
	}
	for name, change := range map[string]func(*options.AuditLogOptions){
		"blocking":        func(*options.AuditLogOptions) {},
		"blocking-strict": func(o *options.AuditLogOptions) { o.BatchOptions.Mode = options.ModeBlockingStrict },
		"batch":           func(o *options.AuditLogOptions) { o.BatchOptions.Mode = options.ModeBatch },
		"not rotated":     func(o *options.AuditLogOptions) { o.MaxSize = 0 },
		"truncated":       func(o *options.AuditLogOptions) { o.TruncateOptions.Enabled = true },
		"legacy":          func(o *options.AuditLogOptions) { o.Format = "legacy" },
	} {
		t.Run(name, func(t *testing.T) {
			o := options.NewAuditOptions()
			o.PolicyFile, o.LogOptions.Path = write(t, header+"rules: [{level: Metadata}]\n"), filepath.Join(t.TempDir(), "new", "audit.log")
			change(&o.LogOptions)
			config, err := Load(o)
			if err != nil {
				t.Fatal(err)
			}
			var g server.Config
			if err := config.Apply(&g); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			if err := g.AuditBackend.Run(stop); err != nil {
				t.Fatal(err)
			}
			if !g.AuditBackend.ProcessEvents(event("create")) {
				t.Error("not recorded")
			}
			close(stop)
			g.AuditBackend.Shutdown()
			if n := open(t, o.LogOptions.Path); n != 0 {
				t.Errorf("%d descriptors are left", n)
			}
			if name != "batch" { // a buffered backend accepts no more events
				passes := g.AuditBackend.ProcessEvents(event("late"))
				if want := name != "blocking-strict"; passes != want {
					t.Errorf("a late event succeeds: %v, want %v", passes, want)
				}
			}
			if n := open(t, o.LogOptions.Path); n != 0 {
				t.Errorf("%d descriptors after a late event", n)
			}
			content, err := os.ReadFile(o.LogOptions.Path)
			if err != nil || !strings.Contains(string(content), "create") || strings.Contains(string(content), "late") {
				t.Errorf("%v: %s", err, content)
			}
		})
	}
}
