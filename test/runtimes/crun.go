// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// crunRelease is the Debian release whose crun is tested. Debian 12's is too old for the version of the OCI specification
// that containerd 2 and CRI-O 1.34 write.
const crunRelease = "trixie"

// fetchCrun returns the directory of crun of a later Debian release, which runs with that release's own libraries. The
// machine's packages, their sources and apt's state stay as they are.
func fetchCrun(ctx context.Context) (string, error) {
	bin, err := filepath.Abs("test/runtimes/bin")
	if err != nil {
		return "", err
	}
	root := filepath.Join(bin, "crun-"+crunRelease+".root")
	if _, err := os.Stat(root); os.IsNotExist(err) {
		fmt.Printf("fetch crun of Debian's %s\n", crunRelease)
		err = extractPackage(ctx, "crun", crunRelease, root)
		if err != nil {
			return "", err
		}
	}
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib/*/ld-linux-*.so.*"))
	if err != nil || len(loaders) != 1 {
		return "", fmt.Errorf("%s has the dynamic loaders %v, %v; want one: remove the directory", root, loaders, err)
	}
	dir := filepath.Join(bin, "crun-"+crunRelease)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// crun replaces itself by /proc/self/exe, with its own command line: the loader, with its arguments.
	command := fmt.Sprintf("%s --library-path %s %s/usr/bin/crun", loaders[0], filepath.Dir(loaders[0]), root)
	return dir, os.WriteFile(filepath.Join(dir, "crun"), []byte(crunScript(command, hybridControllers())), 0o755)
}

// crunAsRunc returns a directory where crun has the name of runc, by which Kindred finds the default OCI runtime.
func crunAsRunc(ctx context.Context) (string, error) {
	crun, err := fetchCrun(ctx)
	if err != nil {
		return "", err
	}
	dir := crun + "-as-runc"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	link := filepath.Join(dir, "runc")
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return dir, os.Symlink(filepath.Join(crun, "crun"), link)
}

// crunScript returns the program crun. crun refuses a machine with cgroup v1 whose unified hierarchy has controllers as
// well, so it does not get to see that hierarchy there.
func crunScript(command string, hybrid bool) string {
	if hybrid {
		command = "unshare --mount --propagation slave -- sh -c 'umount " + unifiedHierarchy + ` && exec "$@"' sh ` + command
	}
	return "#!/bin/sh\nexec " + command + ` "$@"` + "\n"
}

const unifiedHierarchy = "/sys/fs/cgroup/unified"

// hybridControllers reports whether controllers are in the unified hierarchy beside those of cgroup v1.
func hybridControllers() bool {
	controllers, err := os.ReadFile(unifiedHierarchy + "/cgroup.controllers")
	return err == nil && len(strings.TrimSpace(string(controllers))) > 0
}

// extractPackage extracts a package of a Debian release and all that it depends on below a directory, which it creates
// when all are extracted. apt verifies them by the keys of the machine's Debian.
func extractPackage(ctx context.Context, name, release, root string) error {
	work := root + ".new"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, dir := range []string{"lists/partial", "cache/archives/partial", "root"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return err
		}
	}
	archive, err := debianArchive(ctx)
	if err != nil {
		return err
	}
	source := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + archive + " " + release + " main\n"
	if err := os.WriteFile(filepath.Join(work, "sources.list"), []byte(source), 0o644); err != nil {
		return err
	}
	apt := []string{"-qq"}
	for option, value := range map[string]string{
		"Dir::Etc::SourceList": work + "/sources.list", "Dir::Etc::SourceParts": "-",
		"Dir::State::Lists": work + "/lists", "Dir::Cache": work + "/cache",
		"Dir::State::status": "/dev/null", // nothing is installed, so that all dependencies are downloaded
		"APT::Sandbox::User": "root",      // the directory may be closed to other users
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
	} {
		apt = append(apt, "-o", option+"="+value)
	}
	if err := command(ctx, "apt-get", append(apt, "update")...); err != nil {
		return err
	}
	if err := command(ctx, "apt-get", append(apt, "install", "-y", "--no-install-recommends", "--download-only", name)...); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if err := command(ctx, "dpkg-deb", "--extract", p, filepath.Join(work, "root")); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(work, "root"), root)
}

// debianArchive returns the address of the archive from which this machine has its Debian packages.
func debianArchive(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w", err)
	}
	archives := strings.Fields(string(out))
	if len(archives) == 0 {
		return "", errors.New("apt knows no archive of Debian packages: the machine must be a Debian; run \"apt-get update\"")
	}
	return archives[0], nil
}
