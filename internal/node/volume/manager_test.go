// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kindred-project/kindred/internal/mounts"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

var (
	epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

	_ nodepod.Volumes = &Manager{}
)

func TestEveryKindOfContent(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	f.client.PrependReactor("get", "clustertrustbundles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{
			TrustBundle: "note\n-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n"}}, nil
	})
	field := func(path string) []v1.DownwardAPIVolumeFile {
		return []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
	}
	pod := podWith(
		configMapVolume("all", "c"),
		volumeOf("some", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: []v1.KeyToPath{{Key: "one", Path: "dir/uno"}}}}),
		volumeOf("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}),
		volumeOf("down", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: append(field("metadata.labels"),
			v1.DownwardAPIVolumeFile{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}})}}),
		volumeOf("none", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none", Optional: new(true)}}),
		volumeOf("mix", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: []v1.KeyToPath{{Key: "one", Path: "c"}}}},
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: field("metadata.name")}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "me"}},
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "roots", Name: new("roots")}},
		}}}),
	)
	f.prepared(t, pod)
	for volume, want := range map[string]map[string]string{
		"all":    {"one": "1", "two": "2", "binary": "\x00\xff"},
		"some":   {"dir/uno": "1"},
		"secret": {"pass": "word"},
		"down":   {"labels": `a="1"`, "cpu": "2"},
		"none":   {},
		"mix": {"c": "1", "pass": "word", "labels": "p", "token": "uid:[me]:1",
			"roots": "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n"},
	} {
		if diff := cmp.Diff(want, shown(t, f.at(t, pod, volume))); diff != "" {
			t.Errorf("%s: %s", volume, diff)
		}
	}
	for volume, want := range map[string]bool{"all": false, "secret": true, "mix": true, "none": true} {
		if got, err := mountinfo.Mounted(f.at(t, pod, volume)); err != nil || got != want {
			t.Errorf("%s in memory: %v, %v; want %v", volume, got, err, want)
		}
	}
}

func TestErrorsHaveUpstreamMessages(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		name    string
		volumes []v1.Volume
		want    string
	}{
		{"no ConfigMap", []v1.Volume{configMapVolume("v", "none")},
			`MountVolume.SetUp failed for volume "v" : configmap "none" not found`},
		{"no Secret", []v1.Volume{volumeOf("v", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none"}})},
			`MountVolume.SetUp failed for volume "v" : secret "none" not found`},
		{"no key", []v1.Volume{volumeOf("v", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: []v1.KeyToPath{{Key: "k", Path: "k"}}}})},
			`MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: k`},
		{"no secret key", []v1.Volume{volumeOf("v", v1.VolumeSource{Secret: &v1.SecretVolumeSource{
			SecretName: "s", Items: []v1.KeyToPath{{Key: "k", Path: "k"}}}})},
			`MountVolume.SetUp failed for volume "v" : references non-existent secret key: k`},
		{"two errors in a projection", []v1.Volume{volumeOf("v", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}},
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "y"}}}}}})},
			`MountVolume.SetUp failed for volume "v" : [configmap "x" not found, secret "y" not found]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := f.Prepare(context.Background(), podWith(tc.volumes...))
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestUnusedVolumesAreNotPrepared(t *testing.T) {
	f := newFixture(t)
	pod := podWith(configMapVolume("v", "none"))
	pod.Spec.Containers[0].VolumeMounts = nil
	f.prepared(t, pod)
}

func TestRefresh(t *testing.T) {
	f := newFixture(t)
	pod := podWith(configMapVolume("v", "c"))
	f.prepared(t, pod)
	stop := running(t, f.Manager)
	defer stop()

	f.api.set("c", map[string]string{"one": "new"})
	f.Changed(pod.UID)
	dir := f.at(t, pod, "v")
	eventually(t, func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "one"))
		_, err := os.Lstat(filepath.Join(dir, "two"))
		return string(data) == "new" && os.IsNotExist(err)
	})

	// When the ConfigMap is deleted, the files stay and Failed is called.
	f.api.mu.Lock()
	delete(f.api.configMaps, "c")
	f.api.mu.Unlock()
	f.Changed(pod.UID)
	select {
	case err := <-f.failed:
		if want := `MountVolume.SetUp failed for volume "v" : configmap "c" not found`; err.Error() != want {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Failed was not called")
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "one")); string(data) != "new" {
		t.Errorf("content was removed: %q", data)
	}

	// The refresh is retried with backoff.
	f.api.set("c", map[string]string{"one": "back"})
	eventually(t, func() bool {
		f.clock.Step(retryMax)
		data, _ := os.ReadFile(filepath.Join(dir, "one"))
		return string(data) == "back"
	})
}

func TestPrepareAgainUpdatesLabels(t *testing.T) {
	f := newFixture(t)
	pod := podWith(volumeOf("v", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}))
	f.prepared(t, pod)
	changed := pod.DeepCopy()
	changed.Labels["a"] = "2"
	f.prepared(t, changed)
	if diff := cmp.Diff(map[string]string{"labels": `a="2"`}, shown(t, f.at(t, pod, "v"))); diff != "" {
		t.Error(diff)
	}
}

func TestTokenRenewal(t *testing.T) {
	asRoot(t)
	for _, tc := range []struct {
		name    string
		life    int64
		refresh time.Duration
	}{
		{"80 % of its life", 1000, 800 * time.Second},
		{"a day at most", 7 * 24 * 3600, 24 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			pod := podWith(tokenVolume("v", v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &tc.life}))
			f.prepared(t, pod)
			f.clock.Step(tc.refresh - time.Second)
			f.prepared(t, pod)
			if f.tokens != 1 {
				t.Fatalf("%d tokens before the renewal", f.tokens)
			}
			f.clock.Step(time.Second)
			f.prepared(t, pod)
			if got := shown(t, f.at(t, pod, "v"))["token"]; got != "uid:[]:2" {
				t.Errorf("token %q", got)
			}
		})
	}
}

func TestOldTokenIsUsedUntilItExpires(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	pod := podWith(tokenVolume("v", v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(1000))}))
	f.prepared(t, pod)
	f.refuse = errors.New("try later")
	f.clock.Step(900 * time.Second)
	f.prepared(t, pod)
	f.clock.Step(101 * time.Second)
	if err := f.Prepare(context.Background(), pod); err == nil {
		t.Error("an expired token was kept")
	}
}

func TestTokensAreRenewedWithoutEvents(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	pod := podWith(tokenVolume("v", v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(1000))}))
	f.prepared(t, pod)
	stop := running(t, f.Manager)
	defer stop()
	path := filepath.Join(f.at(t, pod, "v"), "token")
	f.clock.Step(801 * time.Second)
	eventually(t, func() bool {
		data, _ := os.ReadFile(path)
		return string(data) == "uid:[]:2"
	})
}

func TestOwnership(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	pod := podWith(
		volumeOf("scratch", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volumeOf("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		volumeOf("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", DefaultMode: new(int32(0o400))}}),
		tokenVolume("token", v1.ServiceAccountTokenProjection{Path: "token"}),
	)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(1234)), RunAsUser: new(int64(99))}
	f.prepared(t, pod)
	for path, want := range map[string]string{
		f.at(t, pod, "scratch"):           "0:1234 dgrwxrwxrwx",
		f.at(t, pod, "memory"):            "0:1234 dgtrwxrwxrwx",
		f.at(t, pod, "secret") + "/pass":  "0:1234 -r--r-----",
		f.at(t, pod, "token") + "/token":  "99:1234 -rw-r-----",
		f.at(t, pod, "token") + "/..data": "0:1234 dgrwxr-xr-x",
	} {
		if got := describe(t, path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}

	// Changes by containers are kept.
	if err := os.Chmod(f.at(t, pod, "scratch"), 0o700|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	f.prepared(t, pod)
	if got := describe(t, f.at(t, pod, "scratch")); got != "0:1234 dgrwx------" {
		t.Errorf("the ownership of scratch was changed: %s", got)
	}
}

func TestTokenModeWithoutCommonUser(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	pod := podWith(tokenVolume("v", v1.ServiceAccountTokenProjection{Path: "token"}))
	f.prepared(t, pod)
	if got := describe(t, f.at(t, pod, "v")+"/token"); got != "0:0 -rw-r--r--" {
		t.Error(got)
	}
}

func describe(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d %v", stat.Uid, stat.Gid, info.Mode())
}

func TestMemorySize(t *testing.T) {
	limited := func(memory ...string) *v1.Pod {
		pod := &v1.Pod{}
		for _, m := range memory {
			c := v1.Container{}
			if m != "" {
				c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(m)}
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		return pod
	}
	const Mi = 1 << 20
	for _, tc := range []struct {
		name  string
		pod   *v1.Pod
		limit string
		want  int64
	}{
		{"the node's", limited(""), "", 1024 * Mi},
		{"the pod's", limited("64Mi", "64Mi"), "", 128 * Mi},
		{"not the pod's when one container has no limit", limited("64Mi", ""), "", 1024 * Mi},
		{"the volume's", limited("64Mi"), "10Mi", 10 * Mi},
		{"never more than the pod's", limited("64Mi"), "1Gi", 64 * Mi},
		{"never more than the node's", limited("4Gi"), "2Gi", 1024 * Mi},
	} {
		var limit *resource.Quantity
		if tc.limit != "" {
			limit = new(resource.MustParse(tc.limit))
		}
		if got := memorySize(1024*Mi, tc.pod, limit); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestMemoryVolumeSize(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	pod := podWith(volumeOf("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
		Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse("1Mi"))}}))
	f.prepared(t, pod)
	path := filepath.Join(f.at(t, pod, "v"), "big")
	if err := os.WriteFile(path, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("2 MiB fit in 1 MiB: %v", err)
	}
}

func TestTeardown(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	host := t.TempDir()
	keep := filepath.Join(host, "sub", "keep")
	mkdir(t, filepath.Dir(keep))
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod := podWith(
		volumeOf("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host}}),
		volumeOf("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
		volumeOf("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}),
	)
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "sub"
	f.prepared(t, pod)
	if _, err := f.Mounts(context.Background(), pod, &pod.Spec.Containers[0], nil); err != nil {
		t.Fatal(err)
	}
	dir := f.options.Layout.PodDir(pod.UID)
	if points, err := mounts.At(dir); err != nil || len(points) != 3 {
		t.Fatalf("mounted: %v, %v; want three", points, err)
	}

	// What shows content of the API goes first, and the rest stays.
	if err := f.DetachContent(pod.UID); err != nil {
		t.Fatal(err)
	}
	f.refresh(context.Background(), pod.UID)
	if points, err := mounts.At(dir); err != nil || len(points) != 2 || slices.ContainsFunc(points, func(p string) bool { return strings.Contains(p, secretDir) }) {
		t.Errorf("mounted without content of the API: %v, %v; want the other two", points, err)
	}

	// A new agent has no state in memory.
	again := New(f.options)
	for range 2 {
		if err := again.Teardown(context.Background(), pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	if points, err := mounts.At(f.options.Layout.Root); err != nil || len(points) != 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("not removed: %v, %v", entries, err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a file of the node was removed: %v", err)
	}
	if len(f.api.released) == 0 {
		t.Error("the pod's objects are still watched")
	}
}

func TestRemoveOrphans(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	for _, uid := range []types.UID{"gone", "stays"} {
		pod := podWith(volumeOf("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}))
		pod.UID = uid
		f.prepared(t, pod)
	}
	if err := f.RemoveOrphans(context.Background(), func(uid types.UID) bool { return uid == "stays" }); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(f.options.Layout.PodsDir())
	if err != nil || len(entries) != 1 || entries[0].Name() != "stays" {
		t.Errorf("on disk: %v, %v", entries, err)
	}
}

func TestOpenFile(t *testing.T) {
	f := newFixture(t)
	pod := podWith(volumeOf("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	f.prepared(t, pod)
	dir := f.at(t, pod, "v")
	if err := os.WriteFile(filepath.Join(dir, "env"), []byte("A='1'"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"out": "/etc/passwd", "up": "../../../../x", "in": "env"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"env": true, "in": true, "out": false, "up": false, "pipe": false, ".": false, "none": false} {
		file, err := f.OpenFile(pod.UID, "v", path)
		if (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
		if err != nil {
			continue
		}
		if data, err := io.ReadAll(file); err != nil || string(data) != "A='1'" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
		_ = file.Close()
	}
}

func running(t *testing.T, m *Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	return func() { cancel(); <-done }
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatal("timed out waiting")
}
