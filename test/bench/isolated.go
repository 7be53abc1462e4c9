// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// isolatedEnv is set for the process in the new namespace.
const isolatedEnv = "KINDRED_BENCH_ISOLATED"

// isolated returns a measurement that this program makes as another process, in a new network namespace with only a
// loopback interface: what it routes does not affect the machine.
func isolated(name string, measure func(context.Context, *bench) (float64, error)) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		if os.Getenv(isolatedEnv) != "" {
			if err := loopbackUp(); err != nil {
				return 0, err
			}
			return measure(ctx, b)
		}
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, os.Args[0], "-kindred", b.binary, "-dir", b.scratch, "-measure", name)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.Env = append(os.Environ(), isolatedEnv+"=1")
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("measure in a network namespace: %w", err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return strconv.ParseFloat(lines[len(lines)-1], 64)
	}
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// measureOnly measures one figure and prints its value on the last line, for [isolated].
func (b *bench) measureOnly(ctx context.Context, name string) error {
	for _, f := range figures() {
		if f.name == name {
			value, err := f.measure(ctx, b)
			fmt.Println(value)
			return err
		}
	}
	return fmt.Errorf("no figure %q", name)
}
