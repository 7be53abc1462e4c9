// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localvolumes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// proxied returns the disk of the node "there", reached by an API server, and its directory.
func proxied(t *testing.T) (Disk, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "volumes")
	agent := Handler(Directories{Root: root})
	api := httptest.NewServer(http.StripPrefix("/api/v1/nodes/there/proxy", agent))
	t.Cleanup(api.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	return Remote(client.CoreV1().RESTClient(), "there"), root
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestRemote: the disk of another machine does what this machine's does.
func TestRemote(t *testing.T) {
	disk, root := proxied(t)
	for _, v := range []Volume{{Name: "pvc-1", Size: 1 << 20}, {Name: "pvc-2", Size: 1 << 20, Block: true}} {
		made, err := disk.Make(t.Context(), v)
		if err != nil || !strings.HasPrefix(made.Path, filepath.Join(root, v.Name)) || !exists(made.Path) || v.Block && !made.Limited {
			t.Fatalf("%+v, %v", made, err)
		}
		mark := filepath.Join(root, v.Name+markSuffix)
		if !exists(mark) {
			t.Error("the new volume has no mark")
		}
		if err := disk.Keep(t.Context(), v.Name); err != nil || exists(mark) {
			t.Errorf("%v, marked: %t", err, exists(mark))
		}
		v.Path, v.Size = made.Path, 2<<20
		if err := disk.Expand(t.Context(), v); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(made.Path); err != nil || v.Block && info.Size() != 2<<20 {
			t.Errorf("%+v, %v", info, err)
		}
		foreign := v
		foreign.Path = "/etc"
		if err := disk.Remove(t.Context(), foreign); err == nil || !strings.Contains(err.Error(), "it was not provisioned there") {
			t.Errorf("a path that is not the volume's: %v", err)
		}
		if err := disk.Remove(t.Context(), v); err != nil || exists(filepath.Join(root, v.Name)) {
			t.Errorf("%v, exists: %t", err, exists(made.Path))
		}
	}
}

func TestRemoteSweep(t *testing.T) {
	disk, root := proxied(t)
	for _, name := range []string{"exists", "wanted", "neither"} {
		if _, err := disk.Make(t.Context(), Volume{Name: name, Size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.Sweep(t.Context(), []string{"exists"}, []string{"wanted"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"exists": true, "exists.new": false, "wanted": true, "wanted.new": true, "neither": false, "neither.new": false} {
		if got := exists(filepath.Join(root, name)); got != want {
			t.Errorf("%s exists: %t", name, got)
		}
	}
}

// TestBadOrders: names that lead elsewhere, and other bad input, change nothing.
func TestBadOrders(t *testing.T) {
	disk, root := proxied(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc", root} {
		for what, do := range map[string]func(context.Context, Volume) error{
			"make":   func(ctx context.Context, v Volume) error { _, err := disk.Make(ctx, v); return err },
			"keep":   func(ctx context.Context, v Volume) error { return disk.Keep(ctx, v.Name) },
			"expand": disk.Expand, "remove": disk.Remove,
		} {
			if err := do(t.Context(), Volume{Name: name, Path: "/etc"}); err == nil || !strings.Contains(err.Error(), "is not the name of a volume") {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
	}
	agent := Handler(Directories{Root: root})
	for path, want := range map[string]int{"make": http.StatusBadRequest, "destroy": http.StatusNotFound} {
		response := httptest.NewRecorder()
		agent.ServeHTTP(response, httptest.NewRequest(http.MethodPost, Path+path, strings.NewReader("{")))
		if response.Code != want {
			t.Errorf("%s: %d, want %d", path, response.Code, want)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(root)); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestUnreachable: the error names the node.
func TestUnreachable(t *testing.T) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Remote(client.CoreV1().RESTClient(), "there").Make(t.Context(), Volume{Name: "pvc-1"}); err == nil || !strings.Contains(err.Error(), "node there, which has the volume: ") {
		t.Error(err)
	}
}

func TestOf(t *testing.T) {
	v := &corev1.PersistentVolume{}
	v.Name = "pvc-1"
	if got := Of(v); got != (Volume{Name: "pvc-1"}) {
		t.Errorf("%+v", got)
	}
}
