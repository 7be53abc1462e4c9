// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	only := flag.String("runtimes", "", "comma-separated names of the runtimes to test; all if empty")
	scenarios := flag.String("run", "", "regular expression of the scenarios to run; those of nodes if empty")
	verbose := flag.Bool("v", false, "print the output of scenarios that pass, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *scenarios, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, scenarios string, verbose bool) error {
	selected, err := selectRuntimes(only)
	if err != nil {
		return err
	}
	if scenarios == "" {
		scenarios = pattern(nodeScenarios)
	}
	program, err := compileScenarios(ctx)
	if err != nil {
		return err
	}
	var all table
	for _, r := range selected {
		fmt.Printf("%s\n", r.name)
		env, stop, err := r.prepare(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		results, err := runScenarios(ctx, program, scenarios, env, verbose)
		stop()
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		all.add(r.name, results)
	}
	fmt.Print(all.String())
	if failed := all.failed(); failed > 0 {
		return fmt.Errorf("%d scenarios failed", failed)
	}
	return nil
}

// selectRuntimes returns the named runtimes, in the order of all.
func selectRuntimes(only string) ([]runtime, error) {
	if only == "" {
		return runtimes, nil
	}
	names := strings.Split(only, ",")
	var selected []runtime
	for _, r := range runtimes {
		if i := slices.Index(names, r.name); i >= 0 {
			names = slices.Delete(names, i, i+1)
			selected = append(selected, r)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("no runtime %s; there are %s", strings.Join(names, ", "), strings.Join(runtimeNames(), ", "))
	}
	return selected, nil
}
