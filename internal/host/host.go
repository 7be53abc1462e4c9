// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kindred-project/kindred/internal/durable"
)

// DefaultRoot is the directory of the machines of a host.
const DefaultRoot = "/var/lib/kindred-machines"

// Host is the directory of machines.
type Host struct {
	root string
}

// Open returns the machines in a directory, which need not exist.
func Open(root string) (*Host, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("directory of machines %s: %w", root, err)
	}
	if filepath.Dir(abs) == "/" {
		return nil, fmt.Errorf("directory of machines %s: it must be below a directory", abs)
	}
	h := &Host{abs}
	// In a directory of machines this would be the directory of a machine.
	if info, err := os.Stat(h.dir(lockName)); err == nil && info.Mode().IsRegular() {
		return nil, fmt.Errorf("directory of machines %s: the machines are in %s", abs, h.path("machines"))
	}
	return h, nil
}

// id identifies the directory on the host: its links, cgroups and rules have it in their names.
func (h *Host) id() string { return short(h.root) }

// short returns eight hexadecimal digits that stand for a text.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

func (h *Host) path(elem ...string) string {
	return filepath.Join(append([]string{h.root}, elem...)...)
}

// InstallProgram copies a program to that of a version of Kubernetes, such as v1.37.1, and returns its path. Machines that run
// the program keep the file that they have.
func (h *Host) InstallProgram(of, program string) (path string, err error) {
	if err := checkVersion(of); err != nil {
		return "", err
	}
	path = h.path(programsName, of, "kindred")
	err = h.changing(func() error {
		same, err := sameContent(path, program)
		if same || err != nil {
			return err
		}
		return copyFile(program, path)
	})
	return path, err
}

// programsName is the name of the directory with the programs, by their versions.
const programsName = "bin"

func checkVersion(name string) error {
	if _, err := version.ParseSemantic(name); err != nil || !strings.HasPrefix(name, "v") {
		return fmt.Errorf("%q is no version such as v1.37.1", name)
	}
	return nil
}

// lockName is the name of the file that is locked during a change.
const lockName = "lock"

// changing runs a function while no other process changes machines.
func (h *Host) changing(change func() error) error {
	if os.Geteuid() != 0 {
		return errors.New("machines on this host need root")
	}
	file, err := h.lock()
	if err != nil {
		return err
	}
	defer file.Close()
	return change()
}

// lock locks the directory, and creates it if it is missing. A lock that was removed with the directory while this process waited is no lock.
func (h *Host) lock() (*os.File, error) {
	for {
		if err := os.MkdirAll(h.root, 0o711); errors.Is(err, fs.ErrExist) {
			continue // it was there, and was removed
		} else if err != nil {
			return nil, err
		}
		file, err := os.OpenFile(h.path(lockName), os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
		}
		current, err := isCurrent(file)
		if current && err == nil {
			return file, nil
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
}

// isCurrent reports whether an open file is the one at its path.
func isCurrent(file *os.File) (bool, error) {
	open, err := file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(file.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(open, named), err
}

// checkName validates the name of a machine or an endpoint: it is a host name, and the name of a directory.
func checkName(what, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("name %q of %s: %s", name, what, strings.Join(problems, "; "))
	}
	return nil
}

// readJSON decodes a file. It reports whether the file exists.
func readJSON(file string, into any) (bool, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	return true, nil
}

func writeJSON(file string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o711); err != nil {
		return err
	}
	return durable.WriteFile(file, append(text, '\n'), 0o600)
}

// entries returns the names in a directory; none if it does not exist.
func entries(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i, entry := range found {
		names[i] = entry.Name()
	}
	return names, nil
}
