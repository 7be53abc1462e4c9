// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unmapPages removes the binary's pages from memory that is counted as the process's. A start touches most
// of its code and tables, and work much of it, and an idle cluster needs fewer of them. The kernel maps a
// page again from its page cache when it is needed.
func unmapPages() error {
	binary, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer smaps.Close()
	unchanged, err := unchangedMappings(smaps, binary)
	if err != nil {
		return err
	}
	for _, m := range unchanged {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}

// unchangedMappings returns the read-only mappings of a file in smaps (proc_pid_smaps(5)) whose content is
// the file's. Relocations and breakpoints of a debugger are changes, which madvise(2) would discard.
func unchangedMappings(smaps io.Reader, file string) ([]mapping, error) {
	var unchanged []mapping
	var current *mapping
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0:
		case !strings.HasSuffix(fields[0], ":"):
			current = readOnlyMapping(fields, file)
		case fields[0] == "Anonymous:" && current != nil && fields[1] == "0":
			unchanged = append(unchanged, *current)
		}
	}
	return unchanged, lines.Err()
}

// readOnlyMapping returns the mapping that the first line of an entry describes; nil if it is not a private
// read-only mapping of the file.
func readOnlyMapping(fields []string, file string) *mapping {
	if len(fields) < 6 || strings.Join(fields[5:], " ") != file || strings.Contains(fields[1], "w") || !strings.HasSuffix(fields[1], "p") {
		return nil
	}
	var m mapping
	if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.start, &m.end); err != nil {
		return nil
	}
	return &m
}
