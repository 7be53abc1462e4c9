// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podOf returns a pod with one container. requests is as in "memory=1Mi ephemeral-storage=1Gi".
func podOf(name string, priority int32, requests string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Generation: 1},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: listOf(requests)},
		}}},
	}
}

func listOf(text string) v1.ResourceList {
	list := v1.ResourceList{}
	for _, item := range strings.Fields(text) {
		name, value, _ := strings.Cut(item, "=")
		list[v1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

func uses(memory int64) Usage {
	return Usage{Memory: &memory, Containers: map[string]Container{"c": {Memory: &memory}}}
}

func stores(layer, logs int64) Usage {
	return Usage{Containers: map[string]Container{"c": {Layer: &Disk{layer, layer}, Logs: &Disk{logs, logs}}}}
}

func TestRank(t *testing.T) {
	type measured struct {
		pod   *v1.Pod
		usage *Usage
	}
	p := func(name string, priority int32, requests string, usage Usage) measured {
		return measured{podOf(name, priority, requests), &usage}
	}
	busy := func(n int64) Usage { return Usage{Processes: &n} }
	for _, test := range []struct {
		name   string
		signal Signal
		layout Layout
		pods   []measured
		want   string
	}{
		{"usage above request comes first, whatever the priority", MemoryAvailable, OneFs, []measured{
			p("below", 0, "memory=100", uses(100)), p("above", 1000, "memory=100", uses(101)),
		}, "above below"},
		{"then priority", MemoryAvailable, OneFs, []measured{
			p("high", 10, "", uses(900)), p("low", -1, "", uses(10)), p("middle", 0, "", uses(10)),
		}, "low middle high"},
		{"then usage above request", AllocatableMemoryAvailable, OneFs, []measured{
			p("by 20", 0, "memory=100", uses(120)), p("by 50", 0, "", uses(50)), p("by 10", 0, "memory=500", uses(510)),
		}, "by 50 by 20 by 10"},
		{"a pod that could not be measured comes first", MemoryAvailable, OneFs, []measured{
			p("above", 0, "", uses(5)), {pod: podOf("unknown", 100, "")},
		}, "unknown above"},
		{"process IDs: priority, then usage", PIDAvailable, OneFs, []measured{
			p("many", 5, "", busy(900)), p("few", 0, "", busy(1)), p("some", 0, "", busy(20)),
		}, "some few many"},
		{"one file system: all that is stored", NodeFsAvailable, OneFs, []measured{
			p("logs", 0, "", stores(1, 10)), p("layer", 0, "", stores(20, 1)), p("requests", 0, "ephemeral-storage=100", stores(20, 40)),
		}, "layer logs requests"},
		{"nodefs beside imagefs: no layers", NodeFsAvailable, ImageFs, []measured{
			p("layer", 0, "", stores(20, 1)), p("logs", 0, "", stores(1, 10)),
		}, "logs layer"},
		{"imagefs: only layers", ImageFsAvailable, ImageFs, []measured{
			p("logs", 0, "", stores(1, 10)), p("layer", 0, "", stores(20, 1)),
		}, "layer logs"},
		{"inodes are not requested", NodeFsInodesFree, OneFs, []measured{
			p("few", 0, "", stores(1, 1)), p("many", 0, "ephemeral-storage=100", stores(20, 40)),
		}, "many few"},
	} {
		var pods []*v1.Pod
		usages := Usages{}
		for _, m := range test.pods {
			pods = append(pods, m.pod)
			if m.usage != nil {
				usages[m.pod.UID] = *m.usage
			}
		}
		var names []string
		for _, pod := range Rank(test.signal, test.layout, pods, usages) {
			names = append(names, pod.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// TestOverLimit has the limits of local storage, and upstream's messages.
func TestOverLimit(t *testing.T) {
	limited := func(limit string) *v1.Pod {
		p := podOf("p", 0, "")
		p.Spec.Containers[0].Resources.Limits = listOf("ephemeral-storage=" + limit)
		return p
	}
	withVolume := func(p *v1.Pod, source v1.EmptyDirVolumeSource) *v1.Pod {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &source}}}
		return p
	}
	size := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	volume := func(u Usage, bytes int64) Usage {
		u.Volumes = map[string]Disk{"v": {Bytes: bytes}}
		return u
	}
	withInit := func(policy *v1.ContainerRestartPolicy) *v1.Pod {
		p := podOf("p", 0, "")
		p.Spec.InitContainers, p.Spec.Containers[0].Name = []v1.Container{p.Spec.Containers[0]}, "app"
		p.Spec.InitContainers[0].RestartPolicy = policy
		p.Spec.InitContainers[0].Resources.Limits = listOf("ephemeral-storage=1Mi")
		// The pod's limit is that of all containers.
		p.Spec.Containers[0].Resources.Limits = listOf("ephemeral-storage=1Gi")
		return p
	}
	const mi = 1 << 20
	for _, test := range []struct {
		name   string
		pod    *v1.Pod
		usage  Usage
		layout Layout
		want   string
	}{
		{"no limit", podOf("p", 0, ""), stores(mi, mi), OneFs, ""},
		{"an emptyDir at its limit", withVolume(podOf("p", 0, ""), v1.EmptyDirVolumeSource{SizeLimit: size("1Mi")}), volume(Usage{}, mi), OneFs, ""},
		{"an emptyDir above its limit", withVolume(podOf("p", 0, ""), v1.EmptyDirVolumeSource{SizeLimit: size("1Mi")}), volume(Usage{}, mi+1), OneFs,
			`Usage of EmptyDir volume "v" exceeds the limit "1Mi". `},
		{"an emptyDir without limit", withVolume(podOf("p", 0, ""), v1.EmptyDirVolumeSource{SizeLimit: size("0")}), volume(Usage{}, mi), OneFs, ""},
		{"an emptyDir in memory", withVolume(podOf("p", 0, ""), v1.EmptyDirVolumeSource{SizeLimit: size("1"), Medium: v1.StorageMediumMemory}), volume(Usage{}, mi), OneFs, ""},
		{"the container's layer and logs", limited("2Mi"), stores(mi, mi), OneFs, ""},
		{"the pod comes before its containers", limited("2Mi"), stores(mi, mi+1), OneFs,
			"Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
		{"the pod's volumes count", withVolume(limited("2Mi"), v1.EmptyDirVolumeSource{}), volume(stores(mi, 1), mi), OneFs,
			"Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
		{"what else is stored counts", limited("2Mi"), Usage{Other: Disk{Bytes: 3 * mi}}, OneFs,
			"Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
		{"a sidecar above its limit", withInit(new(v1.ContainerRestartPolicyAlways)), stores(mi, 1), OneFs, `Container c exceeded its local ephemeral storage limit "1Mi". `},
		{"a layer on imagefs does not count for a container", withInit(new(v1.ContainerRestartPolicyAlways)), stores(mi, 1), ImageFs, ""},
		{"an init container above its limit", withInit(nil), stores(mi, 1), OneFs, ""},
	} {
		got := ""
		if v := OverLimit(test.pod, test.usage, test.layout); v != nil {
			got = v.Message
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestPressureMessage compares with upstream's texts.
func TestPressureMessage(t *testing.T) {
	pod := podOf("p", 0, "memory=1Mi")
	met := []Threshold{{Signal: PIDAvailable, Value: quantity(5)}, {Signal: MemoryAvailable, Value: Value{Share: 0.5}}}
	seen := Observations{
		MemoryAvailable: {Available: binary(100 << 10), Capacity: binary(1 << 20)},
		PIDAvailable:    {Available: *resource.NewQuantity(3, resource.DecimalSI), Capacity: *resource.NewQuantity(10, resource.DecimalSI)},
	}
	for _, test := range []struct {
		name     string
		resource v1.ResourceName
		usages   Usages
		want     string
		notes    map[string]string
	}{
		{"a container above its request", v1.ResourceMemory, Usages{"p": uses(3 << 20)},
			"The node was low on resource: memory. Threshold quantity: 512Ki, available: 100Ki. " +
				"Container c was using 3Mi, request is 1Mi, has larger consumption of memory. ",
			map[string]string{"starved_resource": "memory", "offending_containers": "c", "offending_containers_usage": "3Mi"}},
		{"none above its request", v1.ResourceMemory, Usages{"p": uses(1 << 20)},
			"The node was low on resource: memory. Threshold quantity: 512Ki, available: 100Ki. ",
			map[string]string{"starved_resource": "memory", "offending_containers": "", "offending_containers_usage": ""}},
		{"not measured", pids, nil, "The node was low on resource: pids. Threshold quantity: 5, available: 3. ", map[string]string{}},
		{"a resource without threshold", v1.ResourceEphemeralStorage, Usages{"p": stores(1, 2)},
			"The node was low on resource: ephemeral-storage. Container c was using 3, request is 0, has larger consumption of ephemeral-storage. ",
			map[string]string{"starved_resource": "ephemeral-storage", "offending_containers": "c", "offending_containers_usage": "3"}},
	} {
		got, notes := pressureMessage(test.resource, pod, test.usages, met, seen)
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if diff := cmp.Diff(test.notes, notes); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", test.name, diff)
		}
	}
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: listOf("memory=2Mi")}
	got, notes := pressureMessage(v1.ResourceMemory, pod, Usages{"p": {Memory: new(int64(3 << 20))}}, nil, nil)
	if want := "The node was low on resource: memory. Pod p was using 3Mi, request is 2Mi, has larger consumption of memory. "; got != want || notes["offending_pod"] != "p" || notes["offending_pod_usage"] != "3Mi" {
		t.Errorf("pod with a request of its own: %q %v, want %q", got, notes, want)
	}
}
