// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUpHelpHasSections(t *testing.T) {
	for _, args := range [][]string{{"up", "--help"}, {"help", "up"}} {
		out, _, code := run(t, args...)
		if code != exitOK {
			t.Errorf("%v: status %d", args, code)
		}
		at := 0
		for _, want := range []string{
			"Cluster flags:", "--secure-port", "Authentication flags:", "--oidc-issuer-url", "Authorization flags:", "--authorization-config",
			"Audit flags:", "--audit-log-path", "Global flags:", "--data-dir",
		} {
			next := strings.Index(out[at:], want)
			if next < 0 {
				t.Fatalf("%v: no %s after\n%s", args, want, out[:at])
			}
			at += next
		}
		if strings.Contains(out, "batch-throttle") {
			t.Errorf("%v shows flags that should be hidden", args)
		}
	}
}

// TestUpRefuses: invalid flags are refused before anything is created.
func TestUpRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for flags, want := range map[string]string{
		"--oidc-client-id a":                            "--oidc-issuer-url and --oidc-client-id",
		"--authentication-config /nowhere":              "--authentication-config: open /nowhere",
		"--authorization-config /nowhere":               "--authorization-config: open /nowhere",
		"--audit-policy-file /nowhere":                  "the audit events have no backend",
		"--audit-log-path /nowhere/log":                 "without --audit-policy-file there are no audit events",
		"--authorization-webhook-version v2":            "neither v1 nor v1beta1",
		"--encryption-provider-config /nowhere":         "--encryption-provider-config /nowhere: ",
		"--encryption-provider-config-automatic-reload": "but no --encryption-provider-config to reload",
		"--oidc-required-claim a":                       "malformed pair",
		"--authentication-token-webhook-cache-ttl 1":    "is not a duration",
		"--history-retention 4m59s":                     "--history-retention is 4m59s, and must be at least 5m0s",
		"--history-size 7Gi":                            "--history-size is 7Gi, and may be at most 6Gi: at 8Gi the embedded etcd refuses writes",
		"--history-size much":                           "is not a quantity of bytes",
		"--deletion-records 59s":                        "--deletion-records is 59s, and must be at least 1m0s",
		"--history-size 0":                              "is not a quantity of bytes above 0",
		"--terminated-pod-gc-threshold many":            "is not a whole number",
	} {
		_, errOut, code := run(t, append([]string{"up", "--data-dir", dir}, strings.Fields(flags)...)...)
		if code != exitUsage || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want ...%s...", flags, code, errOut, want)
		}
	}
}

// TestCacheTTL: 0 on the command line disables the cache, which is a negative value in Options.
func TestCacheTTL(t *testing.T) {
	var ttl time.Duration
	flag := newCacheTTL(&ttl, time.Minute)
	if ttl != time.Minute || flag.String() != "1m0s" {
		t.Errorf("the default is %s, shown as %s", ttl, flag)
	}
	for text, want := range map[string]time.Duration{"0": -1, "0s": -1, "5s": 5 * time.Second} {
		if err := flag.Set(text); err != nil || ttl != want {
			t.Errorf("%s: %s, %v", text, ttl, err)
		}
	}
	if err := flag.Set("soon"); err == nil {
		t.Error("an invalid value is accepted")
	}
}
