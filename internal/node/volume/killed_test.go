// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	mountutils "k8s.io/mount-utils"

	"github.com/kindred-project/kindred/internal/loop"
	"github.com/kindred-project/kindred/internal/mounts"
)

// killed is what an interrupted mounter panics with.
type killed struct{}

// fragile is a mounter whose process is killed at a step: before or after each mount.
type fragile struct {
	mountutils.Interface
	steps int
}

func (f *fragile) step() {
	if f.steps--; f.steps < 0 {
		panic(killed{})
	}
}

func (f *fragile) MountSensitiveWithoutSystemd(source, target, fsType string, options, sensitive []string) error {
	f.step()
	err := f.Interface.MountSensitiveWithoutSystemd(source, target, fsType, options, sensitive)
	f.step()
	return err
}

func (f *fragile) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	f.step()
	err := f.Interface.MountSensitive(source, target, fsType, options, sensitive)
	f.step()
	return err
}

// survives runs an action in a process that is killed at a step. It reports whether the action was completed.
func survives(action func()) (completed bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(killed); !ok {
				panic(p)
			}
		}
	}()
	action()
	return true
}

// TestKilledBetweenMounts kills the agent before and after each mount of a local volume. The next agent
// completes the volume, or tears it down. The data stays.
func TestKilledBetweenMounts(t *testing.T) {
	asRoot(t)
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("needs mkfs.ext4")
	}
	// Two mounts, each with a step before and after it; after the last step nothing is left to interrupt.
	for step := range 5 {
		for _, next := range []string{"prepare", "teardown"} {
			t.Run(fmt.Sprintf("%s after %d steps", next, step), func(t *testing.T) {
				if completed := killOnce(t, step, next == "prepare"); completed != (step == 4) {
					t.Errorf("completed: %t", completed)
				}
			})
		}
	}
}

// killOnce kills an agent at a step, and has the next one go on. It reports whether the first one completed.
func killOnce(t *testing.T, step int, again bool) (completed bool) {
	t.Helper()
	f := newFixture(t)
	device, err := loop.Attach(f.disk(t))
	if err != nil {
		t.Fatal(err)
	}
	f.claimed(t, localSource(device))
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	writeFile(t, filepath.Join(f.at(t, pod, "v"), "f"), "kept")
	f.tornDown(t, pod.UID)

	f.mounter = &fragile{Interface: f.mounter, steps: step}
	completed = survives(func() { f.prepared(t, pod) })
	f.Manager = New(f.options)
	if again {
		f.prepared(t, pod)
		expectFile(t, filepath.Join(f.at(t, pod, "v"), "f"), "kept")
	}
	f.tornDown(t, pod.UID)
	if points, err := mounts.At(f.options.Layout.Root); err != nil || len(points) > 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
	if _, err := os.Stat(f.deviceMount("pv")); !os.IsNotExist(err) {
		t.Errorf("the device's mount point still exists: %v", err)
	}
	f.prepared(t, pod)
	expectFile(t, filepath.Join(f.at(t, pod, "v"), "f"), "kept")
	f.tornDown(t, pod.UID)
	return completed
}

// TestOrphanOfLocalVolume: the next agent removes a pod that the API no longer has, but not its data.
func TestOrphanOfLocalVolume(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	data := t.TempDir()
	f.claimed(t, localSource(data))
	pod := podWith(claimVolume("v", false))
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "sub"
	f.prepared(t, pod)
	if _, err := f.Mounts(t.Context(), pod, &pod.Spec.Containers[0], nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(data, "sub", "f"), "kept")
	f.Manager = New(f.options)
	if err := f.RemoveOrphans(t.Context(), keepNone); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.options.Layout.PodDir(pod.UID)); !os.IsNotExist(err) {
		t.Errorf("the pod's directory still exists: %v", err)
	}
	expectFile(t, filepath.Join(data, "sub", "f"), "kept")
}

func keepNone(types.UID) bool { return false }
