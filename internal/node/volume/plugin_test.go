// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestObserve: each operation on a volume is reported, with upstream's name of its plugin, and volumes count while they are
// wanted and present.
func TestObserve(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	var seen []string
	f.Manager.options.Observe = func(plugin, operation string, _ time.Duration, err error) {
		seen = append(seen, fmt.Sprint(plugin, " ", operation, " ", err == nil))
	}
	pod := podWith(
		volumeOf("map", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "missing"}}}),
		volumeOf("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}),
	)
	if err := f.Prepare(context.Background(), pod); err == nil {
		t.Fatal("a volume of a missing ConfigMap was prepared")
	}
	count := func() [2]map[string]int {
		wanted, mounted := map[string]int{}, map[string]int{}
		f.Count(pod, wanted, mounted)
		return [2]map[string]int{wanted, mounted}
	}
	both := map[string]int{"kubernetes.io/configmap": 1, "kubernetes.io/secret": 1}
	if diff := cmp.Diff([2]map[string]int{both, {}}, count()); diff != "" {
		t.Errorf("before: %s", diff)
	}
	f.api.configMaps["missing"] = map[string]string{"a": "b"}
	f.prepared(t, pod)
	if diff := cmp.Diff([2]map[string]int{both, both}, count()); diff != "" {
		t.Errorf("prepared: %s", diff)
	}
	if err := f.Teardown(context.Background(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([2]map[string]int{both, {}}, count()); diff != "" {
		t.Errorf("torn down: %s", diff)
	}
	want := []string{
		"kubernetes.io/configmap volume_mount false", "kubernetes.io/secret volume_mount true",
		"kubernetes.io/configmap volume_mount true", "kubernetes.io/secret volume_mount true",
		"kubernetes.io/configmap volume_unmount true", "kubernetes.io/secret volume_unmount true",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}
