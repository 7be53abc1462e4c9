// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Layout names every path of a data directory. Make one with [New].
type Layout struct {
	// Root is the absolute path of the data directory.
	Root string
}

// New is the layout of the data directory at root. The directory need not exist;
// nothing is created.
func New(root string) (Layout, error) {
	if root == "" {
		return Layout{}, fmt.Errorf("no data directory given: use --data-dir")
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return Layout{}, fmt.Errorf("data directory %s: %w", root, err)
	}
	return Layout{Root: abs}, nil
}

// Default is where a cluster's data lives when nobody says otherwise:
// /var/lib/kindred for root, the XDG data directory for everyone else
// (XDG Base Directory Specification: $XDG_DATA_HOME, else ~/.local/share; a
// relative $XDG_DATA_HOME is to be ignored).
func Default() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/kindred", nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kindred"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no data directory: neither XDG_DATA_HOME nor HOME is set; use --data-dir")
	}
	return filepath.Join(home, ".local", "share", "kindred"), nil
}

func (l Layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.Root}, elem...)...)
}

// Kubeconfig is the administrator's kubeconfig, mode 0600.
func (l Layout) Kubeconfig() string { return l.path("kubeconfig") }

// PKI holds the certificate authorities, the certificates and the keys which
// sign service-account tokens.
func (l Layout) PKI() string { return l.path("pki") }

// Etcd is the embedded etcd's own data directory.
func (l Layout) Etcd() string { return l.path("etcd") }

// Node is the node agent's root: pod volumes, checkpoints, plugins.
func (l Layout) Node() string { return l.path("node") }

// Containerd is the root of the private containerd: content, snapshots, its
// generated configuration.
func (l Layout) Containerd() string { return l.path("containerd") }

// Logs holds pod logs and the logs of the processes started on the side.
func (l Layout) Logs() string { return l.path("logs") }

// RuntimeLog is the log of the private containerd.
func (l Layout) RuntimeLog() string { return l.path("logs", "containerd.log") }

// Run holds sockets and state which do not survive a reboot. It is outside the
// root because the path of a unix socket is limited to 107 bytes (unix(7)), and
// a data directory may be anywhere.
func (l Layout) Run() string {
	if os.Geteuid() == 0 {
		return filepath.Join("/run/kindred", l.ID())
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kindred", l.ID())
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("kindred-%d", os.Geteuid()), l.ID())
}

// RuntimeEndpoint is the CRI endpoint of the private containerd.
func (l Layout) RuntimeEndpoint() string {
	return "unix://" + filepath.Join(l.Run(), "containerd.sock")
}

// ID is eight hexadecimal digits which name this directory among all on the
// machine: the same for the same path, whatever symbolic links lead to it.
func (l Layout) ID() string {
	sum := sha256.Sum256([]byte(resolve(l.Root)))
	return hex.EncodeToString(sum[:4])
}

// resolve follows the symbolic links of the part of a path that exists, so that
// the answer does not change when the rest is created.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolve(parent), filepath.Base(path))
}

func (l Layout) versionFile() string  { return l.path("kindred.version") }
func (l Layout) lockFile() string     { return l.path("kindred.lock") }
func (l Layout) instanceFile() string { return l.path("kindred.json") }
