// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// makers are the commands that make file systems with project quotas.
var makers = map[string][]string{
	"ext4": {"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"},
	"xfs":  {"mkfs.xfs", "-q"},
}

// withProjectQuotas returns a directory in a file system with project quotas.
func withProjectQuotas(t *testing.T, kind string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	file, mounted := filepath.Join(dir, "disk"), filepath.Join(dir, "mounted")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 320<<20); err != nil { // the least that XFS accepts
		t.Fatal(err)
	}
	if err := os.Mkdir(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	maker := append(makers[kind], file)
	if _, err := exec.LookPath(maker[0]); err != nil {
		t.Skip(err)
	}
	if out, err := exec.Command(maker[0], maker[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-t", kind, "-o", "loop,prjquota", file, mounted).CombinedOutput(); err != nil {
		t.Skipf("the kernel has no project quotas (CONFIG_QFMT_V2, CONFIG_XFS_QUOTA): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mounted).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return filepath.Join(mounted, "volumes")
}

// room returns how many KiB a user without privileges can write to a new file in a directory.
func room(t *testing.T, dir string) int64 {
	t.Helper()
	path := filepath.Join(dir, "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	write := exec.Command("dd", "if=/dev/zero", "bs=1024", "count=8192")
	write.Stdout = file
	write.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	_ = write.Run() // fails where the room ends
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return info.Size() / 1024
}

// about allows for the blocks of the directory itself.
func about(t *testing.T, what string, got, want int64) {
	t.Helper()
	if got > want || got < want-16 {
		t.Errorf("%s: room for %d KiB, want %d", what, got, want)
	}
}

// TestLimit: with project quotas, the directory of a claim has room for as much as the claim requests.
func TestLimit(t *testing.T) {
	for kind := range makers {
		t.Run(kind, func(t *testing.T) { testLimit(t, withProjectQuotas(t, kind)) })
		t.Run(kind+" below a project", func(t *testing.T) { testLimitBelow(t, withProjectQuotas(t, kind)) })
	}
}

// testLimitBelow: if an administrator has limited the data directory by a project, that project keeps its limit.
func testLimitBelow(t *testing.T, root string) {
	const id, limit = 42, 16 << 20
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(root, rootMode))
	p, err := openProject(root)
	must(err)
	defer func() { must(p.close()) }()
	must(p.join(id))
	must(p.limit(limit))
	testLimit(t, root)
	if quota, err := p.quota(id); err != nil || quota.HardBlocks != limit/quotaBlockSize {
		t.Errorf("limit of the administrator's project: %d KiB, want %d; %v", quota.HardBlocks, limit/quotaBlockSize, err)
	}
}

// TestIsOwn: the limit of a project is changed only if it was created for the directory.
func TestIsOwn(t *testing.T) {
	const path = "/data/volumes/pvc-1"
	own := firstID(path)
	of := func(id uint32) fsxattr { return fsxattr{ID: id, Flags: inherit} }
	for name, test := range map[string]struct {
		dir, parent fsxattr
		want        bool
	}{
		"no project":               {fsxattr{}, fsxattr{}, false},
		"project 0, inherited":     {of(0), of(0), false},
		"own":                      {of(own), fsxattr{}, true},
		"own, as others were used": {of(own + candidates - 1), fsxattr{}, true},
		"own below a project":      {of(own), of(42), true},
		"of the parent":            {of(42), of(42), false},
		"of the parent, by chance what create chooses": {of(own), of(own), false},
		"of the parent as it was":                      {of(42), fsxattr{}, false},
		"of another directory, by a restoration":       {of(firstID("/data/volumes/pvc-2")), fsxattr{}, false},
		"below what create chooses":                    {of(own - 1), fsxattr{}, false},
		"above what create chooses":                    {of(own + candidates), fsxattr{}, false},
		"not inherited by its files":                   {fsxattr{ID: own}, fsxattr{}, false},
	} {
		if got := isOwn(path, test.dir, test.parent); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestIsUsed: each limit is one that an administrator may have set.
func TestIsUsed(t *testing.T) {
	for name, quota := range map[string]dqblk{
		"space": {Space: 1}, "files": {Files: 1}, "limit": {HardBlocks: 1}, "soft limit": {SoftBlocks: 1},
		"limit of files": {HardFiles: 1}, "soft limit of files": {SoftFiles: 1},
	} {
		if !quota.isUsed() {
			t.Errorf("%s: not used", name)
		}
	}
	if (dqblk{BlockTime: 1, Valid: 1}).isUsed() {
		t.Error("used without files or limits")
	}
}

func testLimit(t *testing.T, root string) {
	b := newBench(t, newClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = gi("1Mi") }))
	b.real.root = root
	v := b.provision()
	if v == nil {
		t.Fatal("no volume")
	}
	if diff := cmp.Diff([]string{"Normal ProvisioningSucceeded Successfully provisioned volume " + v.Name}, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	about(t, "new volume", room(t, v.Spec.Local.Path), 1024)

	// Each step can be repeated, and the limits of volumes are separate.
	other, err := b.real.makeDirectory("other")
	b.Must(err)
	for range 2 {
		if limited, err := b.real.limit("other", 2<<20); err != nil || !limited {
			t.Fatalf("limited %t, %v", limited, err)
		}
	}
	about(t, "other volume", room(t, other), 2048)
	about(t, "first volume", room(t, v.Spec.Local.Path), 1024)

	b.Must(b.real.raise(v, 3<<20))
	about(t, "expanded volume", room(t, v.Spec.Local.Path), 3072)

	// The project is unused when the volume is removed.
	p, err := openProject(v.Spec.Local.Path)
	b.Must(err)
	id := p.attr.ID
	b.Must(p.close())
	b.Must(b.real.remove(v))
	p, err = openProject(other)
	b.Must(err)
	defer func() { b.Must(p.close()) }()
	for range 100 { // XFS frees files in the background
		quota, err := p.quota(id)
		if b.Must(err); !quota.isUsed() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("project %d of the removed volume is still used", id)
}

// TestNoLimit: a file system without project quotas has no projects.
func TestNoLimit(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/proc", "/dev"} {
		if p, err := openProject(dir); p != nil || err != nil {
			t.Errorf("%s: project %v, %v", dir, p, err)
		}
	}
}
