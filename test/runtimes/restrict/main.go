// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command restrict runs an OCI runtime where root lacks CAP_SYS_RESOURCE. Without that capability, a process can neither get
// it nor have an OOM score below that of its parent, so restrict removes both from a container's bundle, or from the process
// of an exec, before it executes the runtime. containerd does the same by its setting restrict_oom_score_adj; CRI-O has none.
//
//	restrict RUNTIME [ARGUMENT ...]
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "restrict:", err)
		os.Exit(1)
	}
}

func run(command []string) error {
	score, err := ownScore()
	if err != nil {
		return err
	}
	if bundle, ok := option(command, "bundle"); ok {
		err = rewrite(filepath.Join(bundle, "config.json"), func(spec map[string]any) {
			process, _ := spec["process"].(map[string]any)
			restrict(process, score)
		})
	} else if file, ok := option(command, "process"); ok {
		err = rewrite(file, func(process map[string]any) { restrict(process, score) })
	}
	if err != nil {
		return err
	}
	return unix.Exec(command[0], command, os.Environ())
}

// ownScore returns the OOM score of this process, which its children inherit.
func ownScore() (int64, error) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// option returns the value of an option of the runtime's command line.
func option(command []string, name string) (string, bool) {
	for i, argument := range command {
		if value, ok := strings.CutPrefix(argument, "--"+name+"="); ok {
			return value, true
		}
		if argument == "--"+name && i+1 < len(command) {
			return command[i+1], true
		}
	}
	return "", false
}

// rewrite changes a JSON file. All else in it stays as it is.
func rewrite(file string, change func(map[string]any)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var content map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // numbers such as those of seccomp are larger than a float64 is exact
	if err := decoder.Decode(&content); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	change(content)
	if text, err = json.Marshal(content); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// restrict removes what a process cannot get without CAP_SYS_RESOURCE.
func restrict(process map[string]any, least int64) {
	if score, ok := process["oomScoreAdj"].(json.Number); ok {
		if n, err := score.Int64(); err == nil && n < least {
			process["oomScoreAdj"] = least
		}
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		if capabilities, ok := set.([]any); ok {
			sets[name] = slices.DeleteFunc(capabilities, func(c any) bool { return c == "CAP_SYS_RESOURCE" })
		}
	}
}
