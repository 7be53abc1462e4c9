// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// upstreamVersion is what upstream's server tells its clients it is. It belongs to the
// version that upstream/go.mod requires.
const upstreamVersion = "v1.37.1"

// program is one of upstream's, built by the module in upstream/.
type program struct {
	name, pkg string
	ldflags   string
}

var (
	etcdProgram      = program{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", ldflags: "-s -w"}
	apiserverProgram = program{
		name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver",
		ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=" + upstreamVersion +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37",
	}
)

// Upstream is where upstream's programs are.
type Upstream struct{ etcd, apiserver string }

// BuildUpstream makes upstream's programs in dir/bin from the module in dir/upstream, dir
// being this package's. What is newer than the module is taken as it is: compiling the
// API server takes minutes, even asking whether it must be compiled takes seconds.
func BuildUpstream(ctx context.Context, dir string) (u Upstream, err error) {
	if u.etcd, err = etcdProgram.build(ctx, dir); err != nil {
		return Upstream{}, err
	}
	u.apiserver, err = apiserverProgram.build(ctx, dir)
	return u, err
}

func (p program) build(ctx context.Context, dir string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(dir, "bin", p.name))
	if err != nil {
		return "", err
	}
	module := filepath.Join(dir, "upstream")
	fresh, err := newer(binary, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum"))
	if fresh || err != nil {
		return binary, err
	}
	fmt.Printf("build upstream's %s (some minutes, once)\n", p.name)
	// Aside first: an interrupted build must not be taken for a finished one.
	aside := binary + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-buildvcs=false", "-ldflags", p.ldflags, "-o", aside, p.pkg)
	cmd.Dir = module
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w", p.pkg, err)
	}
	now := time.Now()
	return binary, errors.Join(os.Rename(aside, binary), os.Chtimes(binary, now, now))
}

// newer is whether file exists and is not older than any of the others.
func newer(file string, others ...string) (bool, error) {
	built, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, other := range others {
		source, err := os.Stat(other)
		if err != nil {
			return false, err
		}
		if built.ModTime().Before(source.ModTime()) {
			return false, nil
		}
	}
	return true, nil
}
