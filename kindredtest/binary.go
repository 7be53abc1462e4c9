// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindredtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// binaryVariable is the environment variable that names the binary.
const binaryVariable = "KINDRED_BIN"

// repositoryModule is the module whose directory holds bin/kindred.
const repositoryModule = "github.com/kindred-project/kindred"

var errNoBinary = errors.New("found no kindred binary: set " + binaryVariable +
	" to its path, put it on PATH, or run \"make build\" in the Kindred repository")

// findBinary returns the path of the kindred binary. If the option or the environment names a
// path that does not exist, it fails.
func findBinary(named, dir string) (string, error) {
	if named != "" {
		return checkBinary(named, "the option Binary")
	}
	if fromEnv := os.Getenv(binaryVariable); fromEnv != "" {
		return checkBinary(fromEnv, binaryVariable)
	}
	// In the repository, use the binary that was built there.
	if root := repository(dir); root != "" {
		if built, err := exec.LookPath(filepath.Join(root, "bin", "kindred")); err == nil {
			return built, nil
		}
	}
	if found, err := exec.LookPath("kindred"); err == nil {
		return found, nil
	}
	return "", errNoBinary
}

func checkBinary(path, source string) (string, error) {
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("no kindred binary where %s says: %w", source, err)
	}
	return found, nil
}

// repository returns the directory at or above dir that has Kindred's go.mod; empty if there
// is none.
func repository(dir string) string {
	for {
		if moduleOf(filepath.Join(dir, "go.mod")) == repositoryModule {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// moduleOf returns the module path in a go.mod; empty if there is none.
func moduleOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if module, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(module)
		}
	}
	return ""
}
