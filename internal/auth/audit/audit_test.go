// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
)

const header = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	good, missing := write(t, header+"rules: [{level: Metadata}]\n"), filepath.Join(t.TempDir(), "missing")
	for name, tt := range map[string]struct {
		change func(*options.AuditOptions)
		want   string // "": no error
	}{
		"no options":               {func(*options.AuditOptions) {}, ""},
		"policy and log":           {func(o *options.AuditOptions) { o.PolicyFile, o.LogOptions.Path = good, "-" }, ""},
		"policy without a backend": {func(o *options.AuditOptions) { o.PolicyFile = good }, "the audit events have no backend"},
		"log without a policy":     {func(o *options.AuditOptions) { o.LogOptions.Path = "-" }, "without --audit-policy-file there are no audit events"},
		"webhook without a policy": {func(o *options.AuditOptions) { o.WebhookOptions.ConfigFile = good }, "without --audit-policy-file there are no audit events"},
		"missing policy file":      {func(o *options.AuditOptions) { o.PolicyFile, o.LogOptions.Path = missing, "-" }, "--audit-policy-file: "},
		"policy without rules":     {func(o *options.AuditOptions) { o.PolicyFile, o.LogOptions.Path = write(t, header), "-" }, "--audit-policy-file: "},
		"unknown level": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path = write(t, header+"rules: [{level: Loud}]\n"), "-"
		}, `Unsupported value: "Loud"`},
		"unknown mode": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path, o.LogOptions.BatchOptions.Mode = good, "-", "lazy"
		}, "invalid audit log mode lazy"},
		"unknown format": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path, o.LogOptions.Format = good, "-", "xml"
		}, "invalid audit log format xml"},
		"negative age": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path, o.LogOptions.MaxAge = good, "-", -1
		}, "--audit-log-maxage -1"},
		"missing webhook configuration": {func(o *options.AuditOptions) {
			o.PolicyFile, o.WebhookOptions.ConfigFile = good, missing
		}, "--audit-webhook-config-file " + missing},
	} {
		t.Run(name, func(t *testing.T) {
			o := options.NewAuditOptions()
			tt.change(o)
			_, err := Load(o)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want ...%s...", err, tt.want)
			}
		})
	}
}

// Without options, no backend and no policy are added to a server.
func TestNoOptions(t *testing.T) {
	for _, o := range []*options.AuditOptions{nil, options.NewAuditOptions()} {
		config, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		var g server.Config
		if err := config.Apply(&g); err != nil {
			t.Error(err)
		}
		if g.AuditBackend != nil || g.AuditPolicyRuleEvaluator != nil {
			t.Error("an event would be recorded")
		}
	}
}
