// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/kindred-project/kindred"
)

// TestInstallRefuses: flags that "kindred up" refuses are refused before the machine is looked at.
func TestInstallRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for flags, want := range map[string]string{
		"--simulated-nodes x":              "--simulated-nodes",
		"--secure-port 70000":              "port 70000; ports are from 0 to 65535",
		"--kubelet-config /nowhere":        "/nowhere",
		"--audit-log-path /nowhere/log":    "without --audit-policy-file there are no audit events",
		"--no-node --kubelet-dir /var/lib": "this machine is to be no node",
	} {
		_, errOut, code := run(t, append([]string{"install", "--data-dir", dir}, strings.Fields(flags)...)...)
		if code != exitUsage || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want ...%s...", flags, code, errOut, want)
		}
	}
}

// TestInstallJoinRefuses: what "kindred join" would refuse is refused before anything is written.
func TestInstallJoinRefuses(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine was booted with systemd")
	}
	dir := filepath.Join(t.TempDir(), "data")
	for flags, want := range map[string]string{
		"--node-nam x": "unknown flag: --node-nam",
		"https://10.0.0.1:6443 --token a.b --ca-hash c": "this machine was not booted with systemd",
	} {
		_, errOut, code := run(t, append([]string{"install", "join", "--data-dir", dir}, strings.Fields(flags)...)...)
		if code == 0 || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want ...%s...", flags, code, errOut, want)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory was created: %v", err)
	}
}

// TestUnitOfANode: the unit has the flags of the node, and not the token.
func TestUnitOfANode(t *testing.T) {
	var options kindred.JoinOptions
	flags := joinFlags(&options)
	if err := flags.Parse([]string{"--token", "abcdef.0123456789abcdef", "--ca-hash=sha256:00", "--node-name", "second", "--pod-network=vxlan"}); err != nil {
		t.Fatal(err)
	}
	args, err := flagsOf(flags, "token", "ca-hash", "wait")
	if want := []string{"--node-name=second", "--pod-network=vxlan"}; err != nil || !slices.Equal(args, want) {
		t.Errorf("%q, %v, want %q", args, err, want)
	}
}

func TestInstallNeedsSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine was booted with systemd")
	}
	dir := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{{"install", "--data-dir", dir}, {"install", "join", "--data-dir", dir}, {"uninstall"}} {
		_, errOut, code := run(t, args...)
		if code != exitError || !strings.Contains(errOut, "this machine was not booted with systemd") {
			t.Errorf("%v: status %d, %q", args, code, errOut)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory was created: %v", err)
	}
}

// TestFlagsOf: the arguments in the unit set the same options as those of the install command.
func TestFlagsOf(t *testing.T) {
	parse := func(args []string) (kindred.Options, *pflag.FlagSet) {
		options := kindred.Options{Audit: kindred.NewAuditOptions()}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range upFlags(&options, new(string)).FlagSets {
			flags.AddFlagSet(set)
		}
		if err := flags.Parse(args); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return options, flags
	}
	given := []string{
		"--secure-port", "0", "--ingress", "--load-balancer-pool", "10.0.0.0/28,10.1.0.0/28", "--load-balancer-pool=fd00::/120",
		"--runtime-config", "api/beta=true,autoscaling/v1=false", "--history-size", "3Gi", "--history-retention=90m",
		"--terminated-pod-gc-threshold", "0", "--authentication-token-webhook-cache-ttl", "0", "--oidc-required-claim", "a=b",
		"--dns-hosts", "/etc/my hosts", "--audit-log-path=-", "--oidc-signing-algs", "RS256,ES256",
	}
	want, flags := parse(given)
	args, err := flagsOf(flags)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := parse(args)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q (-want +got):\n%s", args, diff)
	}
	if !slices.Equal(got.LoadBalancerPools, []string{"10.0.0.0/28", "10.1.0.0/28", "fd00::/120"}) || got.SecurePort != 0 || !got.Ingress {
		t.Errorf("options %+v", got)
	}
}
