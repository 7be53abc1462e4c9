// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// hostPath is a path of the node. Teardown leaves it alone.
type hostPath struct {
	source   *v1.HostPathVolumeSource
	onlyRead bool
	options  []string // mount options of the persistent volume, which hostPath does not support
}

func (v *hostPath) path() string   { return v.source.Path }
func (v *hostPath) readOnly() bool { return v.onlyRead }

func (v *hostPath) prepare(context.Context) (time.Time, error) {
	if len(v.options) > 0 {
		return time.Time{}, &stepError{
			step: "MountVolume.MountOptionSupport check failed", reason: failedMount,
			err: errors.New("mount options are not supported for this volume type"),
		}
	}
	if slices.Contains(strings.Split(v.source.Path, "/"), "..") {
		return time.Time{}, fmt.Errorf("invalid HostPath `%s`: must not contain '..'", v.source.Path)
	}
	if v.source.Type == nil {
		return time.Time{}, nil
	}
	return time.Time{}, checkType(v.source.Path, *v.source.Type)
}

// words are the types' names in upstream's messages.
var words = map[v1.HostPathType]string{
	v1.HostPathDirectory: "directory",
	v1.HostPathFile:      "file",
	v1.HostPathSocket:    "socket file",
	v1.HostPathCharDev:   "character device",
	v1.HostPathBlockDev:  "block device",
}

// checkType checks the path against the declared type, and creates it for the OrCreate types.
func checkType(path string, want v1.HostPathType) error {
	switch want {
	case v1.HostPathUnset:
		return nil
	case v1.HostPathDirectoryOrCreate:
		if isMissing(path) {
			return os.MkdirAll(path, 0o755)
		}
		want = v1.HostPathDirectory
	case v1.HostPathFileOrCreate:
		if isMissing(path) {
			return makeFile(path)
		}
		want = v1.HostPathFile
	}
	word, known := words[want]
	if !known {
		return fmt.Errorf("%s is an invalid volume type", want)
	}
	got, err := typeOf(path)
	switch {
	case err != nil:
		return fmt.Errorf("hostPath type check failed, %s is not a %s, unable to determine its type: %w", path, word, err)
	case got != want:
		return fmt.Errorf("hostPath type check failed: %s is not a %s, it's a %s", path, word, got)
	}
	return nil
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// makeFile creates an empty file. Its directory must exist, as documented for FileOrCreate.
func makeFile(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

func typeOf(path string) (v1.HostPathType, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return v1.HostPathDirectory, nil
	case mode.IsRegular():
		return v1.HostPathFile, nil
	case mode&fs.ModeSocket != 0:
		return v1.HostPathSocket, nil
	case mode&fs.ModeCharDevice != 0:
		return v1.HostPathCharDev, nil
	case mode&fs.ModeDevice != 0:
		return v1.HostPathBlockDev, nil
	}
	return "", fmt.Errorf("only recognise file, directory, socket, block device and character device")
}
