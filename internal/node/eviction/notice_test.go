// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestNotice: people read which limits are met, in units that they can read.
func TestNotice(t *testing.T) {
	seen := Observations{
		NodeFsAvailable:  {Available: binary(7_696_580_608), Capacity: binary(270_553_174_016)},
		ImageFsAvailable: {Available: binary(7_696_580_608), Capacity: binary(270_553_174_016)}, // one disk
		NodeFsInodesFree: {Available: *resource.NewQuantity(1234, resource.DecimalSI), Capacity: *resource.NewQuantity(100_000, resource.DecimalSI)},
		MemoryAvailable:  {Available: binary(80<<20 + 5), Capacity: binary(1 << 30)},
	}
	soft := Threshold{Signal: NodeFsAvailable, Value: Value{Share: 0.05}, Grace: time.Minute}
	hard := Threshold{Signal: NodeFsAvailable, Value: Value{Share: 0.05}}
	images := Threshold{Signal: ImageFsAvailable, Value: Value{Share: 0.05}}
	inodes := Threshold{Signal: NodeFsInodesFree, Value: Value{Share: 0.05}}
	memory := Threshold{Signal: MemoryAvailable, Value: quantity(100 << 20)}
	const set = "; evictionHard and evictionSoft of a KubeletConfiguration set the limits)"
	for condition, want := range map[v1.NodeConditionType]string{
		v1.NodeDiskPressure: "has DiskPressure: no pod is placed on it until more is free, and pods may be evicted " +
			"(nodefs.available is 7340Mi, less than 12900Mi, nodefs.inodesFree is 1234, less than 5k" + set,
		v1.NodeMemoryPressure: "has MemoryPressure: no pod without requests is placed on it until more is free, and pods may be evicted " +
			"(memory.available is 80Mi, less than 100Mi" + set,
	} {
		if diff := cmp.Diff(want, notice(condition, []Threshold{memory, hard, soft, inodes, images}, seen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", condition, diff)
		}
	}
}

// TestManagerNotices: each condition is told when it begins to hold, once.
func TestManagerNotices(t *testing.T) {
	n, m, _ := newModel(Threshold{Signal: NodeFsAvailable, Value: quantity(100)})
	want := notice(v1.NodeDiskPressure, []Threshold{{Signal: NodeFsAvailable, Value: quantity(100)}}, Observations{
		NodeFsAvailable: {Available: binary(50), Capacity: binary(1000)},
	})
	n.waste = 950
	n.run(t, m, time.Minute)
	if diff := cmp.Diff([]string{want}, n.noticed); diff != "" {
		t.Errorf("under pressure (-want +got):\n%s", diff)
	}
	n.waste = 0
	n.run(t, m, time.Minute)
	n.waste = 950
	n.run(t, m, time.Minute)
	if diff := cmp.Diff([]string{want, want}, n.noticed); diff != "" {
		t.Errorf("under pressure once more (-want +got):\n%s", diff)
	}
}
