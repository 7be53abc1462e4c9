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
		"nothing":                {func(*options.AuditOptions) {}, ""},
		"a log":                  {func(o *options.AuditOptions) { o.PolicyFile, o.LogOptions.Path = good, "-" }, ""},
		"a policy alone":         {func(o *options.AuditOptions) { o.PolicyFile = good }, "the audit events have no backend"},
		"a log alone":            {func(o *options.AuditOptions) { o.LogOptions.Path = "-" }, "without --audit-policy-file there are no audit events"},
		"a webhook alone":        {func(o *options.AuditOptions) { o.WebhookOptions.ConfigFile = good }, "without --audit-policy-file there are no audit events"},
		"no policy":              {func(o *options.AuditOptions) { o.PolicyFile, o.LogOptions.Path = missing, "-" }, "--audit-policy-file: "},
		"a policy without rules": {func(o *options.AuditOptions) { o.PolicyFile, o.LogOptions.Path = write(t, header), "-" }, "--audit-policy-file: "},
		"an unknown level": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path = write(t, header+"rules: [{level: Loud}]\n"), "-"
		}, `Unsupported value: "Loud"`},
		"an unknown mode": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path, o.LogOptions.BatchOptions.Mode = good, "-", "lazy"
		}, "invalid audit log mode lazy"},
		"an unknown format": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path, o.LogOptions.Format = good, "-", "xml"
		}, "invalid audit log format xml"},
		"a negative age": {func(o *options.AuditOptions) {
			o.PolicyFile, o.LogOptions.Path, o.LogOptions.MaxAge = good, "-", -1
		}, "--audit-log-maxage -1"},
		"no webhook": {func(o *options.AuditOptions) {
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

// Without options nothing is added to a server, and nothing costs.
func TestNothing(t *testing.T) {
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
			t.Error("something is recorded")
		}
	}
}
