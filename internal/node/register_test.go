// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/deviceplugin"
)

// fakeRuntime is the part of CRI that a reporter reads.
type fakeRuntime struct {
	cri.RuntimeService
	cri.ImageManagerService
	network bool
}

func (f *fakeRuntime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: "RuntimeReady", Status: true},
		{Type: "NetworkReady", Status: f.network, Reason: "NetworkPluginNotReady", Message: "no network yet"},
	}}}, nil
}

func (f *fakeRuntime) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return []*runtimeapi.Image{
		{Id: "1", RepoTags: []string{"small:1"}, Size: 1},
		{Id: "2", RepoTags: []string{"a", "b", "c", "d", "e"}, RepoDigests: []string{"large@sha256:2"}, Size: 2},
	}, nil
}

func (f *fakeRuntime) Close(context.Context) error { return nil }

func newRegistration(client *fake.Clientset, runtime *fakeRuntime, clock *testingclock.FakeClock, record func(eventType, reason, message string)) *registration {
	options := Options{
		Name: nodeName, Client: client, IPs: []string{"192.0.2.1"}, ServePort: 10250, PodCIDRs: []string{"10.244.0.0/24"}, Config: config.Default(), Version: "v1.37.1",
		Labels: map[string]string{"role": "all"}, Clock: clock,
	}
	return &registration{options: options, record: record, changed: make(chan struct{}, 1), reporter: &reporter{
		devices: func() map[string]deviceplugin.Count {
			return map[string]deviceplugin.Count{"example.com/device": {Capacity: 3, Allocatable: 2}}
		},
		shutdown: func() error { return nil },
		inUse:    func() []v1.UniqueVolumeName { return nil },
		pressure: func() []v1.NodeConditionType { return nil },
		options:  options, runtime: runtime, images: runtime, version: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "1.6.20"},
		machine: machine{cpus: 2, memory: 1 << 30, disk: 1 << 40, kernel: "6.1", osImage: "Debian"},
	}}
}

func TestNodeRegisters(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	runtime := &fakeRuntime{}
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	var events []string
	s := newRegistration(client, runtime, clock, func(_, reason, message string) { events = append(events, reason+": "+message) })
	file := *s.options.Config
	file.ProviderID, file.RegisterWithTaints = "example://node", []v1.Taint{{Key: "from-file", Effect: v1.TaintEffectNoSchedule}}
	s.options.Config = &file
	s.register(ctx)
	node := s.current()
	if node.Spec.ProviderID != "example://node" || len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "from-file" {
		t.Errorf("spec %+v lacks what the configuration file sets", node.Spec)
	}
	wantLabels := map[string]string{
		"kubernetes.io/hostname": nodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": node.Status.NodeInfo.Architecture,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": node.Status.NodeInfo.Architecture, "role": "all",
	}
	if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if node.Spec.PodCIDR != "10.244.0.0/24" || node.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 ||
		node.Status.NodeInfo.ContainerRuntimeVersion != "containerd://1.6.20" || node.Status.Images[0].Names[0] != "large@sha256:2" || len(node.Status.Images[0].Names) != 5 {
		t.Errorf("node is %+v", node)
	}
	for list, want := range map[*v1.ResourceList]string{&node.Status.Capacity: "3", &node.Status.Allocatable: "2"} {
		if got := (*list)["example.com/device"]; got.String() != want {
			t.Errorf("%s devices, want %s", got.String(), want)
		}
	}
	ready := func() v1.NodeCondition { return *conditionIn(s.current().Status.Conditions, v1.NodeReady) }
	if isReady, err := s.sync(ctx); err != nil || isReady {
		t.Errorf("ready %t without a network, %v", isReady, err)
	}
	if got, want := ready().Message, "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no network yet"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	clock.Step(time.Minute)
	runtime.network = true
	if isReady, err := s.sync(ctx); err != nil || !isReady {
		t.Errorf("ready %t with a network, %v", isReady, err)
	}
	if c := ready(); c.Reason != "KubeletReady" || c.Message != "kubelet is posting ready status" || !c.LastTransitionTime.Time.Equal(clock.Now()) {
		t.Errorf("condition %+v", c)
	}
	annotations := map[string]string{
		"volumes.kubernetes.io/controller-managed-attach-detach": "true",
		"kindred.dev/lacks": "apparmor,image-volumes,recursive-read-only-mounts,selinux,user-namespaces",
	}
	if diff := cmp.Diff(annotations, node.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	var want []string
	for _, reason := range []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"} {
		want = append(want, reason+": Node "+nodeName+" status is now: "+reason)
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestNodeRegistersAgain: a second agent finds the Node that an earlier agent registered.
func TestNodeRegistersAgain(t *testing.T) {
	old := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{"theirs": "kept"}, Annotations: map[string]string{"theirs": "kept"}},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: "RouteCreated"},
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionUnknown, Reason: "NodeStatusUnknown"},
			{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
			{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady"},
		}},
	}
	var events []string
	s := newRegistration(fake.NewClientset(old), &fakeRuntime{network: true}, testingclock.NewFakeClock(time.Unix(1_800_000_000, 0)),
		func(_, reason, _ string) { events = append(events, reason) })
	s.register(t.Context())
	node := s.current()
	if node.Labels["theirs"] != "kept" || node.Labels["role"] != "all" || node.Annotations["theirs"] != "kept" || node.Annotations[managedAttach] != "true" {
		t.Errorf("labels %v, annotations %v", node.Labels, node.Annotations)
	}
	if diff := cmp.Diff([]string{"NodeHasSufficientPID", "NodeReady"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if _, err := s.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure"}, events[2:]); diff != "" {
		t.Errorf("events of the first status (-want +got):\n%s", diff)
	}
}

// TestNodeStatusIsWrittenOnlyWhenItMatters: an unchanged status is written only every five minutes.
func TestNodeStatusIsWrittenOnlyWhenItMatters(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := newRegistration(client, &fakeRuntime{network: true}, clock, func(string, string, string) {})
	if err := s.tryRegister(ctx); err != nil {
		t.Fatal(err)
	}
	writes := func() (n int) {
		for _, a := range client.Actions() {
			if a.Matches("patch", "nodes") && a.GetSubresource() == "status" {
				n++
			}
		}
		return n
	}
	for range 60 { // ten minutes
		if _, err := s.sync(ctx); err != nil {
			t.Fatal(err)
		}
		clock.Step(10 * time.Second)
	}
	if got := writes(); got != 2 {
		t.Errorf("%d writes in ten minutes, want 2", got)
	}
	if err := client.CoreV1().Nodes().Delete(ctx, nodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.Step(5 * time.Minute)
	if _, err := s.sync(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{}); err != nil {
		t.Errorf("a deleted node was not registered again: %v", err)
	}
	if got := s.current().Name; got != nodeName {
		t.Errorf("after the registration, the agent's Node object is %q", got)
	}
}

// TestNodeMovesToOtherAddresses: a second agent has other addresses, and several of one type.
// TestReboot: one event follows a reboot, and none the first start.
func TestReboot(t *testing.T) {
	ctx := t.Context()
	client, clock := fake.NewClientset(), testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	for _, boot := range []struct{ id, want string }{
		{"one", ""}, {"one", ""}, {"two", "Warning Rebooted: Node " + nodeName + " has been rebooted, boot id: two"}, {"two", ""},
	} {
		var events []string
		s := newRegistration(client, &fakeRuntime{network: true}, clock, func(eventType, reason, message string) {
			if reason == "Rebooted" {
				events = append(events, eventType+" "+reason+": "+message)
			}
		})
		s.reporter.machine.bootID = boot.id
		s.register(ctx)
		for range 2 {
			clock.Step(time.Hour)
			if _, err := s.sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(events, "\n"); got != boot.want {
			t.Errorf("boot %s: events %q, want %q", boot.id, got, boot.want)
		}
	}
}

func TestNodeMovesToOtherAddresses(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	for _, ips := range [][]string{{"192.0.2.1"}, {"192.0.2.2", "2001:db8::2"}, {"192.0.2.2", "2001:db8::3"}, {"192.0.2.4"}} {
		s := newRegistration(client, &fakeRuntime{network: true}, clock, func(string, string, string) {})
		s.reporter.options.IPs = ips
		if err := s.tryRegister(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.sync(ctx); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range s.current().Status.Addresses {
			if a.Type == v1.NodeInternalIP {
				got = append(got, a.Address)
			}
		}
		if diff := cmp.Diff(ips, got); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
	}
}

func TestThisMachine(t *testing.T) {
	m, err := readMachine(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m.cpus < 1 || m.memory < 1<<20 || m.disk < 1<<20 || m.kernel == "" || m.osImage == "" || m.bootID == "" {
		t.Errorf("this machine is %+v", m)
	}
}

func TestStatusPatch(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
		{Type: "example.com/gate", Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionFalse},
	}}}
	if patch, err := statusPatch(p, *p.Status.DeepCopy()); err != nil || patch != nil {
		t.Errorf("patch %s without a change, %v", patch, err)
	}
	status := *p.Status.DeepCopy()
	status.Phase, status.Conditions[1].Status = v1.PodRunning, v1.ConditionTrue
	patch, err := statusPatch(p, status)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(patch, &got); err != nil {
		t.Fatal(err)
	}
	text := `{"metadata":{"uid":"u"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],
		"$setElementOrder/conditions":[{"type":"example.com/gate"},{"type":"Ready"}]}}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

// TestStatusConflict distinguishes a pod that was recreated from one that was changed.
func TestStatusConflict(t *testing.T) {
	old := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "old"}}
	for uid, gone := range map[string]bool{"old": false, "new": true} {
		current := old.DeepCopy()
		current.UID = "new"
		if uid == "old" {
			current.UID = "old"
		}
		client := fake.NewClientset(current)
		client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, k8sruntime.Object, error) {
			if a.GetVerb() == "get" {
				return false, nil, nil
			}
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", nil)
		})
		s := podStatus{client: client}
		written, err := s.Write(t.Context(), old, v1.PodStatus{Phase: v1.PodRunning})
		if written != nil || (err == nil) != gone {
			t.Errorf("API has pod %s: wrote %v, %v", uid, written, err)
		}
		if err := s.Delete(t.Context(), old); (err == nil) != gone {
			t.Errorf("API has pod %s: delete: %v", uid, err)
		}
	}
}

// TestLabelsAreCorrected: the labels of operating system and architecture that a client changed are written with the next
// status, and labels of clients stay.
func TestLabelsAreCorrected(t *testing.T) {
	ctx, client := t.Context(), fake.NewClientset()
	s := newRegistration(client, &fakeRuntime{network: true}, testingclock.NewFakeClock(time.Unix(1_800_000_000, 0)), func(string, string, string) {})
	s.register(ctx)
	if _, err := s.sync(ctx); err != nil {
		t.Fatal(err)
	}
	node := s.current().DeepCopy()
	right := node.Labels[v1.LabelArchStable]
	node.Labels[v1.LabelOSStable], node.Labels["theirs"] = "dummyOS", "kept"
	delete(node.Labels, v1.LabelArchStable)
	node, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.observe(node)
	if _, err := s.sync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := s.current().Labels; got[v1.LabelOSStable] != "linux" || got[v1.LabelArchStable] != right || right == "" || got["theirs"] != "kept" {
		t.Errorf("labels %v", got)
	}
}
