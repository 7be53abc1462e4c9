// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/loop"
)

// provisionAnother deletes the claim, and lets a new process provision the volume of another one.
func (b *bench) provisionAnother() {
	b.t.Helper()
	b.Must(b.API.Delete(ctx, b.claim()))
	b.Must(b.API.Create(ctx, newClaim()))
	b.provisioner = b.begin(b.nodes)
	b.provision()
	if v := b.volume(); v == nil || !exists(v.Spec.Local.Path) {
		b.t.Errorf("not provisioned: %v", v)
	}
}

// What a process made and did not use is removed by the next one, if the claim is gone and nothing was written to it.
func TestSweep(t *testing.T) {
	killed := errors.New("killed")
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"directory": func(*corev1.PersistentVolumeClaim) {}, "block": ofBlocks,
	} {
		for data, left := range map[string]bool{"": false, "data": true} {
			t.Run(name+data, func(t *testing.T) {
				b := newBench(t, newClaim(change))
				b.Refuse = func(string, client.Object) error { return killed }
				if err := b.reconcile(client.ObjectKey{Namespace: "ns", Name: "data"}); !errors.Is(err, killed) {
					t.Fatal(err)
				}
				path := filepath.Join(b.nodes.Root, "pvc-uid-0001")
				if !exists(path) {
					t.Fatal("the process was killed too early")
				}
				if data != "" {
					file, err := os.OpenFile(filepath.Join(path, "block"), os.O_RDWR|os.O_CREATE, 0o600)
					b.Must(err)
					_, err = file.WriteString(data)
					b.Must(errors.Join(err, file.Sync(), file.Close()))
				}
				b.Refuse = nil
				b.provisionAnother()
				if exists(path) != left {
					t.Errorf("exists: %t", !left)
				}
				if entries, err := os.ReadDir(b.nodes.Root); err != nil || len(entries) != 1 && !left {
					t.Errorf("left: %v, %v", entries, err)
				}
			})
		}
	}
}

// A deleted PersistentVolume can be created again if its policy was Retain, although nothing was written to it.
func TestRetainedDirectoryIsNotSwept(t *testing.T) {
	b := newBench(t, newClaim())
	v := b.provision()
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	b.Must(b.API.Update(ctx, v))
	b.Must(b.reconcile(client.ObjectKeyFromObject(v)))
	b.Must(b.API.Delete(ctx, b.volume()))
	b.provisionAnother()
	if !exists(v.Spec.Local.Path) {
		t.Error("removed")
	}
}

// The file of a block volume is kept as long as it is attached, as it is for a while after its pod was deleted by force.
func TestAttachedFilesAreNotRemoved(t *testing.T) {
	if _, err := os.Stat("/dev/loop-control"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and loop devices")
	}
	b := newBench(t, newClaim(ofBlocks))
	v := b.provision()
	key := client.ObjectKeyFromObject(v)
	device, err := loop.Attach(v.Spec.Local.Path)
	b.Must(err)
	t.Cleanup(func() {
		if device, err := loop.Find(v.Spec.Local.Path); err == nil && device != "" {
			_ = loop.Detach(device)
		}
	})
	b.setPhase(corev1.VolumeReleased)
	b.Must(b.reconcile(key))
	if err := b.reconcile(key); err == nil || !strings.Contains(err.Error(), "is attached as "+device) || !exists(v.Spec.Local.Path) {
		t.Errorf("error %v, exists %t", err, exists(v.Spec.Local.Path))
	}
	b.Must(loop.Detach(device))
	b.Must(b.reconcile(key))
	if b.volume() != nil || exists(filepath.Dir(v.Spec.Local.Path)) {
		t.Error("not removed")
	}
}
