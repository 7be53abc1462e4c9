// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestInvalidValues passes invalid values to flags of each type.
func TestInvalidValues(t *testing.T) {
	const duration = "is not a duration; durations have units, as in 30s, 5m or 1h30m"
	for _, c := range []struct {
		line []string
		want string
	}{
		{[]string{"up", "--simulated-nodes", "x"}, `--simulated-nodes: "x" is not a whole number`},
		{[]string{"up", "--simulated-nodes", "1.5"}, `--simulated-nodes: "1.5" is not a whole number`},
		{[]string{"up", "--simulated-nodes="}, `--simulated-nodes: "" is not a whole number`},
		{[]string{"up", "--secure-port", "99999999999999999999"}, `--secure-port: "99999999999999999999" is out of range`},
		{[]string{"up", "--terminated-pod-gc-threshold", "many"}, `--terminated-pod-gc-threshold: "many" is not a whole number`},
		{[]string{"tree", "--depth", "x", "pod", "p"}, `--depth: "x" is not a whole number`},
		{[]string{"tree", "--depth", "3000000000", "pod", "p"}, `--depth: "3000000000" is out of range`},
		{[]string{"up", "--no-node=maybe"}, `--no-node: "maybe" is neither true nor false`},
		{[]string{"delete", "--wait=x", "pod", "p"}, `--wait: "x" is neither true nor false`},
		{[]string{"up", "--history-retention", "5"}, `--history-retention: "5" ` + duration},
		{[]string{"up", "--authentication-token-webhook-cache-ttl", "soon"}, `--authentication-token-webhook-cache-ttl: "soon" ` + duration},
		{[]string{"up", "--history-size", "big"}, `--history-size: "big" is not a quantity of bytes above 0, such as 512Mi or 2Gi`},
		{[]string{"up", "--history-size", "-1Gi"}, `--history-size: "-1Gi" is not a quantity of bytes above 0, such as 512Mi or 2Gi`},
	} {
		out, got, code := run(t, c.line...)
		want := "error: " + c.want + `; see "kindred ` + c.line[0] + ` --help"` + "\n"
		if out != "" || got != want || code != exitUsage {
			t.Errorf("kindred %s: exit status %d, %q, %q, want %q", strings.Join(c.line, " "), code, out, got, want)
		}
	}
}

// TestNoFlagQuotesTheParser passes a value that no parser accepts to each flag of each verb.
func TestNoFlagQuotesTheParser(t *testing.T) {
	verbs := []*cobra.Command{New("v1.2.3")}
	tried := 0
	for len(verbs) > 0 {
		verb := verbs[0]
		verbs = append(verbs[1:], verb.Commands()...)
		verb.Flags().VisitAll(func(flag *pflag.Flag) {
			err := verb.Flags().Set(flag.Name, "x\x00\"")
			if err == nil {
				return
			}
			tried++
			text := flagError(verb, err).Error()
			if strings.Contains(text, "strconv") || strings.Contains(text, "time:") || !strings.HasPrefix(text, "--"+flag.Name+": ") {
				t.Errorf("%s: %s", verb.CommandPath(), text)
			}
		})
	}
	if tried < 20 {
		t.Errorf("only %d flags refused the value", tried)
	}
}
