// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLimitTLS: the limits of TLS are those of the file, and TLS 1.2 or newer by default.
func TestLimitTLS(t *testing.T) {
	const suites = "tlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"
	for _, test := range []struct {
		text    string
		want    *tls.Config
		ignored string
	}{
		{"", &tls.Config{MinVersion: tls.VersionTLS12}, ""},
		{"tlsMinVersion: VersionTLS10", &tls.Config{MinVersion: tls.VersionTLS10}, ""},
		{"tlsMinVersion: VersionTLS13", &tls.Config{MinVersion: tls.VersionTLS13}, ""},
		{suites, &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, ""},
		{
			"tlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]",
			&tls.Config{MinVersion: tls.VersionTLS13, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}}, "tlsCipherSuites has no effect",
		},
		{"tlsCurvePreferences: [29, 4588]", &tls.Config{MinVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.X25519, tls.X25519MLKEM768}}, ""},
	} {
		c, err := Parse([]byte(head + test.text))
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		var got tls.Config
		if err := LimitTLS(&c.KubeletConfiguration, &got); err != nil {
			t.Errorf("%q: %v", test.text, err)
		}
		type limits struct {
			min    uint16
			suites []uint16
			curves []tls.CurveID
		}
		if diff := cmp.Diff(limits{test.want.MinVersion, test.want.CipherSuites, test.want.CurvePreferences},
			limits{got.MinVersion, got.CipherSuites, got.CurvePreferences}, cmp.AllowUnexported(limits{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
		if ignored := strings.Join(c.Ignored, "\n"); !strings.Contains(ignored, test.ignored) || (ignored == "") != (test.ignored == "") {
			t.Errorf("%q: ignored %q, want %q in it", test.text, ignored, test.ignored)
		}
	}
}
