// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"io"
	"strings"
)

// maxFile limits the size of a file that a container wrote. On Linux, one variable is at most 128 KiB
// long.
const maxFile = 1 << 20

// parseFile returns the value of key in a file of NAME='value' assignments (KEP-3721). The quotes are
// required and may span lines. The text between them is taken literally. Blank lines and lines that
// begin with # are ignored. As in a shell, a blank after the = makes the value empty.
func parseFile(r io.Reader, key string) (value string, found bool, err error) {
	content, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return "", false, err
	}
	if len(content) > maxFile {
		return "", false, fmt.Errorf("environment variable file is larger than %d bytes", maxFile)
	}
	rest, line := string(content), 0
	for rest != "" {
		line++
		var current string
		current, rest, _ = strings.Cut(rest, "\n")
		current = strings.TrimLeft(strings.TrimSuffix(current, "\r"), " \t")
		if current == "" || current[0] == '#' {
			continue
		}
		name, assigned, ok := strings.Cut(current, "=")
		if err := checkName(name, ok, line); err != nil {
			return "", false, err
		}
		if assigned != strings.TrimLeft(assigned, " \t") {
			if name == key {
				return "", true, nil
			}
			continue
		}
		if !strings.HasPrefix(assigned, "'") {
			return "", false, invalid(line, "value must be enclosed in single quotes")
		}
		quoted, after, ok := strings.Cut(assigned[1:], "'")
		for start := line; !ok; line++ {
			if rest == "" {
				return "", false, invalid(start, "unclosed single quote")
			}
			var next string
			next, rest, _ = strings.Cut(rest, "\n")
			var more string
			more, after, ok = strings.Cut(next, "'")
			quoted += "\n" + more
		}
		if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
			return "", false, invalid(line, "unexpected content after closing quote")
		}
		if name == key {
			return quoted, true, nil
		}
	}
	return "", false, nil
}

func checkName(name string, assigned bool, line int) error {
	switch {
	case !assigned:
		return invalid(line, "missing '='")
	case strings.TrimRight(name, " \t") == "":
		return invalid(line, "empty variable name")
	case name != strings.TrimRight(name, " \t"):
		return invalid(line, "whitespace before '=' is not allowed")
	}
	return nil
}

func invalid(line int, what string) error {
	return fmt.Errorf("invalid environment variable format at line %d: %s", line, what)
}
