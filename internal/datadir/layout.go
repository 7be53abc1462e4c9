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

// Layout has the paths of a data directory. Create it with [New].
type Layout struct {
	// Root is the absolute path of the data directory.
	Root string
}

// New returns the layout of the data directory at root. The directory need not exist, and is not
// created.
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

// Default returns the default data directory: /var/lib/kindred for root, and for other users a
// directory in $XDG_DATA_HOME, by default ~/.local/share (XDG Base Directory Specification, which
// requires that a relative $XDG_DATA_HOME is ignored).
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

// Kubeconfig is the administrator's kubeconfig, with mode 0600.
func (l Layout) Kubeconfig() string { return l.path("kubeconfig") }

// PKI holds the certificate authorities, the certificates and the key that signs service account
// tokens.
func (l Layout) PKI() string { return l.path("pki") }

// Membership says which cluster this machine has joined; it does not exist in the data directory of a cluster.
func (l Layout) Membership() string { return l.path("membership.json") }

// WireGuardKey is the private key of this machine for the pod network, if that is encrypted.
func (l Layout) WireGuardKey() string { return l.path("wireguard.key") }

// Etcd is the data directory of the embedded etcd.
func (l Layout) Etcd() string { return l.path("etcd") }

// Node is the root of the node agent: pod volumes, checkpoints, plugins.
func (l Layout) Node() string { return l.path("node") }

// Volumes holds the directories of provisioned PersistentVolumes: users' data.
func (l Layout) Volumes() string { return l.path("volumes") }

// Containerd is the root of the private containerd: content, snapshots, generated configuration.
func (l Layout) Containerd() string { return l.path("containerd") }

// Logs holds pod logs and the logs of processes that Kindred starts.
func (l Layout) Logs() string { return l.path("logs") }

// RuntimeLog is the log of the private containerd.
func (l Layout) RuntimeLog() string { return l.path("logs", "containerd.log") }

// Run holds sockets and state that does not survive a reboot. It is outside of the root, because
// the path of a unix socket is limited to 107 bytes (unix(7)) and a data directory may be anywhere.
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

// ID returns eight hexadecimal digits that identify this directory on the machine. They are the
// same for the same path, whatever symbolic links lead to it.
func (l Layout) ID() string {
	sum := sha256.Sum256([]byte(resolve(l.Root)))
	return hex.EncodeToString(sum[:4])
}

// resolve follows the symbolic links in the part of a path that exists, so that the result does not
// change when the rest is created.
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
func (l Layout) serverFile() string   { return l.path("server") }
func (l Layout) instanceFile() string { return l.path("kindred.json") }
func (l Layout) machinesFile() string { return l.path("machines.json") }
