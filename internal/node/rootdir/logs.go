// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rootdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/mounts"
)

// ContainerLogsDir is the directory in which log shippers look for the logs of containers, as the kubelet has it: links
// named <pod>_<namespace>_<container>-<id>.log.
const ContainerLogsDir = "/var/log/containers"

// LogsDir holds one directory of logs for each pod. Other agents may share it.
func (l Layout) LogsDir() string {
	if l.Logs == "" {
		return filepath.Join(l.Root, "logs")
	}
	return l.Logs
}

// PodLogsDir is the sandbox's log directory.
func (l Layout) PodLogsDir(namespace, name string, uid types.UID) string {
	return filepath.Join(l.LogsDir(), namespace+"_"+name+"_"+string(uid))
}

// ContainerLog is the log's path relative to PodLogsDir, as CRI wants it.
func (l Layout) ContainerLog(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// PodOfLogs returns the pod of a directory of logs, given the directory's name.
func PodOfLogs(name string) (types.UID, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}

// logsRecord is a link to LogsDir below Root, for [RemoveLogs].
func logsRecord(root string) string { return filepath.Join(root, "pod-logs") }

// PrepareLogs creates the directories of logs and links. Root exists.
func (l Layout) PrepareLogs() error {
	if err := os.MkdirAll(l.LogsDir(), 0o750); err != nil {
		return err
	}
	record := logsRecord(l.Root)
	if err := removeFile(record); err != nil {
		return err
	}
	if err := os.Symlink(l.LogsDir(), record); err != nil || l.Links == "" {
		return err
	}
	return os.MkdirAll(l.Links, 0o755)
}

// MakePodLogsDir creates the log directory of a pod, and PodDir before it: an agent removes only the logs of pods that it has
// such a directory of.
func (l Layout) MakePodLogsDir(namespace, name string, uid types.UID) error {
	return errors.Join(os.MkdirAll(l.PodDir(uid), 0o750), os.MkdirAll(l.PodLogsDir(namespace, name, uid), 0o755))
}

// Link is the link to the log of a container; "" if no links are made.
func (l Layout) Link(namespace, pod, container, id string) string {
	const longest, suffix = 255, ".log"
	if l.Links == "" {
		return ""
	}
	name := pod + "_" + namespace + "_" + container + "-" + id
	return filepath.Join(l.Links, name[:min(len(name), longest-len(suffix))]+suffix)
}

// RemovePodLogs removes a directory of LogsDir and the links to the logs in it.
func (l Layout) RemovePodLogs(dir string) error {
	parts := strings.Split(filepath.Base(dir), "_")
	if l.Links == "" || len(parts) != 3 {
		return mounts.RemoveAll(dir)
	}
	links, err := filepath.Glob(filepath.Join(l.Links, parts[1]+"_"+parts[0]+"_*"))
	errs := []error{err}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			errs = append(errs, removeFile(link))
		}
	}
	return errors.Join(append(errs, mounts.RemoveAll(dir))...)
}

// OwnLogs returns the directories of the logs of pods that have a PodDir, by their pod.
func (l Layout) OwnLogs() (map[types.UID]string, error) {
	entries, err := os.ReadDir(l.LogsDir())
	if err != nil {
		return nil, ignoreMissing(err)
	}
	own := map[types.UID]string{}
	for _, entry := range entries {
		uid, ok := PodOfLogs(entry.Name())
		if !ok {
			continue
		}
		if _, err := os.Lstat(l.PodDir(uid)); err == nil {
			own[uid] = filepath.Join(l.LogsDir(), entry.Name())
		}
	}
	return own, nil
}

// RemoveLogs removes the logs of all pods of an agent that has ended, given its Root.
func RemoveLogs(root string) error {
	dir, err := os.Readlink(logsRecord(root))
	if err != nil {
		return ignoreMissing(err)
	}
	l := Layout{Root: root, Logs: dir, Links: ContainerLogsDir}
	own, err := l.OwnLogs()
	errs := []error{err}
	for _, logs := range own {
		errs = append(errs, l.RemovePodLogs(logs))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the logs of pods: %w", err)
	}
	return nil
}

func removeFile(file string) error { return ignoreMissing(os.Remove(file)) }

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
