// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// TestGivenToken: a token of another form is refused before the cluster is asked.
func TestGivenToken(t *testing.T) {
	for _, token := range []string{"x", "ABCDEF.0123456789abcdef", "abcdef.0123", "abcdef-0123456789abcdef"} {
		_, errOut, code := run(t, "token", "create", token, "--kubeconfig", "/does/not/exist")
		if code != exitUsage || !strings.Contains(errOut, "the token does not have the form abcdef.0123456789abcdef") {
			t.Errorf("%s: exit status %d, %q", token, code, errOut)
		}
	}
}
