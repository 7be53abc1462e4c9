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

	"github.com/kindred-project/kindred/internal/localvolumes"
	"github.com/kindred-project/kindred/internal/projectquota"
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
	must(os.Mkdir(root, 0o700))
	p, err := projectquota.Open(root)
	must(err)
	defer func() { must(p.Close()) }()
	must(p.Join(id))
	must(p.Limit(limit))
	testLimit(t, root)
	if got, err := p.SizeLimit(); err != nil || got != limit {
		t.Errorf("limit of the administrator's project: %d, want %d; %v", got, limit, err)
	}
}

func testLimit(t *testing.T, root string) {
	b := newBench(t, newClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = gi("1Mi") }))
	b.nodes.Root = root
	v := b.provision()
	if v == nil {
		t.Fatal("no volume")
	}
	if diff := cmp.Diff([]string{"Normal ProvisioningSucceeded Successfully provisioned volume " + v.Name}, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	about(t, "new volume", room(t, v.Spec.Local.Path), 1024)

	// Each step can be repeated, and the limits of volumes are separate.
	disk, other := localvolumes.Directories{Root: root}, ""
	for range 2 {
		made, err := disk.Make(ctx, localvolumes.Volume{Name: "other", Size: 2 << 20})
		if err != nil || !made.Limited {
			t.Fatalf("%+v, %v", made, err)
		}
		other = made.Path
	}
	about(t, "other volume", room(t, other), 2048)
	about(t, "first volume", room(t, v.Spec.Local.Path), 1024)

	larger := localvolumes.Of(v)
	larger.Size = 3 << 20
	b.Must(disk.Expand(ctx, larger))
	about(t, "expanded volume", room(t, v.Spec.Local.Path), 3072)

	// The project is unused when the volume is removed.
	p, err := projectquota.Open(v.Spec.Local.Path)
	b.Must(err)
	id := p.ID()
	b.Must(p.Close())
	b.Must(disk.Remove(ctx, larger))
	p, err = projectquota.Open(other)
	b.Must(err)
	defer func() { b.Must(p.Close()) }()
	for range 100 { // XFS frees files in the background
		used, err := p.IsUsed(id)
		if b.Must(err); !used {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("project %d of the removed volume is still used", id)
}
