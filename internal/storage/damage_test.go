// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/storage/check"
)

const damagePrefix = "/registry/configmaps/default/"

// encodedConfigMap returns an object as the API stores it.
func encodedConfigMap(t *testing.T, name, text string) string {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"text": text}}
	value, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), object)
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// damageable returns a stopped store with known content and several log segments.
func damageable(t *testing.T) (dir string, content map[string]string) {
	t.Helper()
	whole := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 64 << 10
	t.Cleanup(func() { wal.SegmentSizeBytes = whole })
	dir, content = filepath.Join(t.TempDir(), "etcd"), map[string]string{}
	for run := range 2 {
		b := open(t, dir)
		for i := range 150 {
			name := fmt.Sprintf("object-%d-%03d", run, i)
			for version := range 1 + i%2 {
				value := encodedConfigMap(t, name, strings.Repeat(fmt.Sprint(version), 400))
				if _, err := b.Client().Put(t.Context(), damagePrefix+name, value); err != nil {
					t.Fatal(err)
				}
				content[damagePrefix+name] = value
			}
			if i%7 == 0 {
				if _, err := b.Client().Delete(t.Context(), damagePrefix+name); err != nil {
					t.Fatal(err)
				}
				delete(content, damagePrefix+name)
			}
		}
		b.Close()
	}
	return dir, content
}

// contentOf returns the keys under damagePrefix.
func contentOf(t *testing.T, b *Backend) map[string]string {
	t.Helper()
	found, err := b.Client().Get(t.Context(), damagePrefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for _, kv := range found.Kvs {
		content[string(kv.Key)] = string(kv.Value)
	}
	return content
}

// copyOf copies a store.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	target := filepath.Join(t.TempDir(), "etcd")
	if err := os.CopyFS(target, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return target
}

// filesOf returns the files of a store to damage, in a fixed order.
func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "member/wal/*.wal"))
	if err != nil || len(logs) < 2 {
		t.Fatalf("the log has %d files: %v", len(logs), err)
	}
	slices.Sort(logs)
	database := filepath.Join(dir, "member/snap/db")
	return []string{database, database, database, logs[0], logs[len(logs)-1]}
}

// TestRandomDamage damages a file at a random place. Either the check finds the damage, or the
// store still has all its content.
func TestRandomDamage(t *testing.T) {
	const rounds = 120
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	original, want := damageable(t)
	found := 0
	for round := range rounds {
		dir := copyOf(t, original)
		files := filesOf(t, dir)
		file := files[random.IntN(len(files))]
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(content, "\x00"))
		at := random.IntN(used)
		kind := "flip"
		switch round % 4 {
		case 0, 1:
			content[at] ^= 1 << random.IntN(8)
		case 2:
			kind = "zero"
			clear(content[at:min(at+512, len(content))])
		case 3:
			kind = "cut"
			content = content[:at]
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("seed %d, round %d: %s at %d of %s", seed, round, kind, at, file)
		b, err := Embedded(t.Context(), dir, clock.RealClock{}, DefaultRetention)
		var damaged *check.Error
		if errors.As(err, &damaged) {
			found++
			if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, dir) || !strings.Contains(text, "restore") {
				t.Errorf("%s: %s", what, text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: the damage was found by etcd, not by the check: %v", what, err)
			continue
		}
		if got := contentOf(t, b); !maps.Equal(got, want) {
			t.Errorf("%s: the damage was not found, and damaged objects are served", what)
		}
		b.Close()
	}
	if found < rounds/2 {
		t.Errorf("of %d damaged stores, %d were found", rounds, found)
	}
}

// TestCheckOfAGoodStore: after a clean stop a store is checked without decoding objects; after an
// unclean one it is checked as well.
func TestCheckOfAGoodStore(t *testing.T) {
	dir, want := damageable(t)
	for name, prepare := range map[string]func(dir string) error{
		"stopped":        func(string) error { return nil },
		"without record": func(dir string) error { return os.Remove(filepath.Join(dir, "record")) },
		"without sums":   func(dir string) error { return os.Remove(filepath.Join(dir, "sums")) },
		"damaged record": func(dir string) error { return os.WriteFile(filepath.Join(dir, "record"), []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, dir)
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			before := filesState(t, dir)
			report, err := check.Store(t.Context(), dir, true)
			if err != nil || len(report.Damage) > 0 {
				t.Fatalf("a good store: %v, %v", report, err)
			}
			if report.Objects != len(want) || report.Clean != (name == "stopped") {
				t.Errorf("%d objects of %d were decoded, clean: %v", report.Objects, len(want), report.Clean)
			}
			if after := filesState(t, dir); after != before {
				t.Errorf("the check changed the store:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// TestNoTimeForChecksums: a stop without time to record the checksums keeps those of the last stop,
// and the store starts.
func TestNoTimeForChecksums(t *testing.T) {
	dir, want := damageable(t)
	files := func() string {
		_, files, _ := strings.Cut(filesState(t, dir), "\n") // without the directory's own time, which differs
		return files
	}
	before := files()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := check.NoteStop(ctx, dir, 1, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("stop returned %v", err)
	}
	if after := files(); after != before {
		t.Errorf("files were\n%s\nand are\n%s", before, after)
	}
	b, err := Embedded(t.Context(), dir, clock.RealClock{}, DefaultRetention)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := contentOf(t, b); !maps.Equal(got, want) {
		t.Error("the content differs")
	}
}

// filesState returns names, times and contents of all files.
func filesState(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&all, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestDropDamaged: an object that cannot be decoded is found and can be dropped; others stay.
// Encrypted objects are not damaged.
func TestDropDamaged(t *testing.T) {
	dir, want := damageable(t)
	b := open(t, dir)
	for key, value := range map[string]string{
		damagePrefix + "bad-1":                "k8s\x00 nonsense",
		damagePrefix + "bad-2":                encodedConfigMap(t, "another", "x"),
		"/registry/example.com/tools/one/bad": "{",
		"/registry/secrets/default/secret":    "k8s:enc:aescbc:v1:key:\x01\x02",
		"/registry/example.com/tools/one/two": `{"apiVersion":"example.com/v1","kind":"Tool","metadata":{"name":"two"}}`,
	} {
		if _, err := b.Client().Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	report, err := check.Store(t.Context(), dir, true)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, d := range report.Damage {
		keys = append(keys, d.Key)
	}
	slices.Sort(keys)
	if bad := []string{damagePrefix + "bad-1", damagePrefix + "bad-2", "/registry/example.com/tools/one/bad"}; !slices.Equal(keys, bad) || report.Encrypted != 1 || !report.Droppable() {
		t.Fatalf("found %v, %d encrypted", report.Damage, report.Encrypted)
	}
	// One byte of another object changes on the disk.
	victim := damagePrefix + "object-1-005"
	changeValue(t, dir, victim, want[victim])
	if report, err = check.Store(t.Context(), dir, true); err != nil || len(report.Damage) != 4 {
		t.Fatalf("found %v, %v", report, err)
	}
	if err := DropDamaged(t.Context(), dir, clock.RealClock{}, report); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir)
	defer b.Close()
	delete(want, victim)
	if got := contentOf(t, b); !maps.Equal(got, want) {
		t.Errorf("%d objects are left of %d", len(got), len(want))
	}
}

// TestUndecodableObjectEndsTheStart: an object that cannot be decoded fails the start, because its
// watch cache would never fill.
func TestUndecodableObjectEndsTheStart(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	defer b.Close()
	if _, err := b.Client().Put(t.Context(), "/registry/configmaps/default/bad", "k8s\x00 nonsense"); err != nil {
		t.Fatal(err)
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := scheme.Codecs.CodecForVersions(info.Serializer, info.Serializer, corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
	config := storagebackend.NewDefaultConfig(Prefix, codec)
	_, destroy, err := b.decorator(false)(config.ForResource(schema.GroupResource{Resource: "configmaps"}), "/configmaps",
		func(obj runtime.Object) (string, error) {
			return "/configmaps/default/" + obj.(*corev1.ConfigMap).Name, nil
		},
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} },
		apistorage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	select {
	case err := <-b.Failed():
		if text := err.Error(); !strings.Contains(text, "configmaps") || !strings.Contains(text, "--drop-damaged") || !strings.Contains(text, b.dir) {
			t.Errorf("says %q", text)
		}
	case <-time.After(20 * time.Second):
		t.Error("the start waits for a watch cache that never fills")
	}
}

// changeValue changes the last byte of a value in the database.
func changeValue(t *testing.T, dir, key, value string) {
	t.Helper()
	path := filepath.Join(dir, "member/snap/db")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte{value[len(value)-10]}, 100)
	changed := false
	for from := 0; ; {
		at := bytes.Index(content[from:], []byte(key))
		if at < 0 {
			break
		}
		from += at + len(key)
		if place := bytes.Index(content[from:], text); place >= 0 && place < 400 {
			content[from+place+50] ^= 1
			changed = true
		}
	}
	if !changed {
		t.Fatalf("%s is not in %s", key, path)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamageIsNamed: damage on which bbolt and etcd would loop, panic or fault, and older files.
func TestDamageIsNamed(t *testing.T) {
	original, _ := damageable(t)
	earlier := copyOf(t, original)
	b := open(t, original)
	for i := range 20 {
		if _, err := b.Client().Put(t.Context(), damagePrefix+"later", encodedConfigMap(t, "later", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	database := func(dir string) string { return filepath.Join(dir, "member/snap/db") }
	replace := func(dir, name string) error {
		return errors.Join(os.RemoveAll(filepath.Join(dir, name)), os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(earlier, name))))
	}
	branches := func(change func(page []byte, id uint64)) func(string) error {
		return func(dir string) error {
			content, err := os.ReadFile(database(dir))
			if err != nil {
				return err
			}
			for id := uint64(2); int(id+1)*4096 <= len(content); id++ {
				page := content[id*4096 : (id+1)*4096]
				if binary.NativeEndian.Uint64(page) == id && page[8] == 1 {
					change(page, id)
				}
			}
			return os.WriteFile(database(dir), content, 0o600)
		}
	}
	for _, c := range []struct {
		name, says string
		do         func(dir string) error
	}{
		{"a branch that is its own child", "twice", branches(func(page []byte, id uint64) { binary.NativeEndian.PutUint64(page[24:], id) })},
		{"a branch whose child is far away", "no such page", branches(func(page []byte, id uint64) { page[30] = 9 })},
		{"a branch without entries", "no entries", branches(func(page []byte, id uint64) { clear(page[10:12]) })},
		{"a key outside of the page", "not within it", branches(func(page []byte, id uint64) { page[19] = 0xff })},
		{"no database, and an incomplete log", "missing", func(dir string) error {
			return errors.Join(os.Remove(database(dir)), os.Remove(filesOf(t, dir)[3]))
		}},
		{"an empty database", "not a database", func(dir string) error { return os.Truncate(database(dir), 0) }},
		{"a truncated database", "truncated: it has", func(dir string) error { return os.Truncate(database(dir), 40<<10) }},
		{"no log", "missing", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "member/wal")) }},
		{"an older log", "older than the database", func(dir string) error { return replace(dir, "member/wal") }},
		{"an older store", "replaced by an older one", func(dir string) error { return replace(dir, "member") }},
		{"no store", "mount the disk", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "member")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyOf(t, original)
			if err := c.do(dir); err != nil {
				t.Fatal(err)
			}
			b, err := Embedded(t.Context(), dir, clock.RealClock{}, DefaultRetention)
			if err == nil {
				b.Close()
				t.Fatal("the damage was not found")
			}
			if text := err.Error(); !strings.Contains(text, c.says) || !strings.Contains(text, dir) || !strings.Contains(text, "restore") || strings.Contains(text, "\n") {
				t.Errorf("says %q", text)
			}
		})
	}
}

// TestDatabaseFromLog: a missing database is recreated if the log is complete.
func TestDatabaseFromLog(t *testing.T) {
	dir, want := damageable(t)
	if err := os.RemoveAll(filepath.Join(dir, "member/snap")); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	if got := contentOf(t, b); !maps.Equal(got, want) {
		t.Errorf("%d objects of %d", len(got), len(want))
	}
	b.Close()
	if report, err := check.Store(t.Context(), dir, true); err != nil || len(report.Damage) > 0 {
		t.Errorf("the check of the recreated store finds %v, %v", report, err)
	}
}

// TestOpeningNeverHangs: damage that only etcd finds fails the start too: by an error of NewServer,
// or by a timeout where etcd would wait silently.
func TestOpeningNeverHangs(t *testing.T) {
	original, _ := damageable(t)
	for name, segment := range map[string]int{"the first segment": 3, "the last segment": 4} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, original)
			file := filesOf(t, dir)[segment]
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			clear(content[1000:])
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			failed := newFailure()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			running, err := startServer(ctx, dir, alone, failed)
			if err == nil {
				defer running.stop()
				err = awaitServer(ctx, running, nil, failed, 2*time.Second)
			}
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "restore") {
				t.Errorf("opening a damaged log returned %v", err)
			}
		})
	}
}
