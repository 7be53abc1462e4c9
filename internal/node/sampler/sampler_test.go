// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/stats"
)

// cgroups is a tree of cgroups, each of which uses half a core since the start of the clock.
type cgroups struct {
	clock *testingclock.FakeClock
	none  bool
}

var start = time.Unix(1000, 0)

func (c cgroups) Path(p *v1.Pod) string {
	if c.none {
		return ""
	}
	return "/k/pod" + string(p.UID)
}

func (c cgroups) Parent() string {
	if c.none {
		return ""
	}
	return "/k"
}

func (c cgroups) ContainerPath(pod, id string) (string, error) { return pod + "/" + id, nil }

func (c cgroups) Sample(path string) (cgroup.Sample, error) {
	if strings.HasSuffix(path, "/gone") {
		return cgroup.Sample{}, os.ErrNotExist
	}
	return cgroup.Sample{
		Usage: cgroup.Usage{CPU: c.clock.Since(start) / 2, Memory: 40}, MemoryUsage: 70, RSS: 10, Swap: new(uint64(6)), PageFaults: 9, OwnPageFaults: 8, OwnMajorPageFaults: 2,
		MemoryStat:  cgroup.MemoryStat{ActiveFile: 11, InactiveFile: 12, DirtyFile: 13, WritebackFile: 0, Scanned: 15, Reclaimed: 16, FileRefaults: 17, AnonRefaults: -1, Kernel: 18},
		CPUPressure: &cgroup.Pressure{Some: cgroup.PressureLine{Avg10: 1, Total: 5}},
	}, nil
}

func (c cgroups) Limits(string) cgroup.Limits {
	return cgroup.Limits{CPUQuota: 50000, Bursts: 3, BurstTime: time.Second / 4, KernelMemory: -1, Memory: 1000, Swap: -1, Threads: 5, MaxThreads: -1, OOMKills: 2, MemoryReservation: 500, MemoryPeak: 90, HighEvents: 4, MaxEvents: 7}
}

func (c cgroups) IO(string) []cgroup.DeviceIO {
	return []cgroup.DeviceIO{{Device: "/dev/sda", Major: 8, ReadBytes: 4096, WriteBytes: 512, Reads: 2, Writes: 1, Costs: map[string]time.Duration{"usage": time.Second / 2, "wait": 0}}}
}

func (c cgroups) Processes(string) (uint64, error) { return 3, nil }

func (c cgroups) PIDs(path string) ([]int, error) {
	switch {
	case strings.HasSuffix(path, "/gone"):
		return nil, os.ErrNotExist
	case strings.HasSuffix(path, "/id"), strings.HasSuffix(path, "/sandbox"):
		return []int{os.Getpid()}, nil
	default:
		return nil, nil
	}
}

type noRuntime struct{}

func (noRuntime) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return []*runtimeapi.ContainerStats{{
		Attributes:    &runtimeapi.ContainerAttributes{Id: "id"},
		WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: 100}, InodesUsed: &runtimeapi.UInt64Value{Value: 2}},
	}}, nil
}

func (noRuntime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return nil, errors.New("no images")
}

func newSampler(t *testing.T, none bool, pods ...Pod) (*Sampler, *testingclock.FakeClock) {
	t.Helper()
	clock := testingclock.NewFakeClock(start)
	root := t.TempDir()
	for name, size := range map[string]int{"volume/file": 8192, "logs/0.log": 50} {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return New(Options{
		Node: "n", RootDir: root, Memory: 1 << 30, Clock: clock, Cgroups: cgroups{clock, none},
		Pods: func() []Pod { return pods }, Runtime: noRuntime{}, Images: noRuntime{},
		Logs: func(*v1.Pod, string) string { return filepath.Join(root, "logs") },
		Volumes: func(types.UID) []Volume {
			return []Volume{{Name: "files", Path: filepath.Join(root, "volume"), Files: true, Local: true}, {Name: "claim", Path: root, Claim: "data"}}
		},
		FromRuntime: func(context.Context) (map[types.UID]*stats.Pod, error) {
			return map[types.UID]*stats.Pod{"u": {Containers: []stats.Container{{Name: "c", Usage: stats.Usage{Time: start, CPU: time.Second, Memory: 5}}}}}, nil
		},
	}), clock
}

func podOf(containers ...Container) Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100")}}}}
	return Pod{Pod: p, Sandbox: "sandbox", Containers: containers}
}

// TestNetworkWithoutSandboxProcess: the statistics of the network of a pod whose sandbox has no process are those that its
// containers see.
func TestNetworkWithoutSandboxProcess(t *testing.T) {
	s, _ := newSampler(t, false)
	want, err := interfacesOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		containers []Container
		want       []Interface
	}{
		{[]Container{{Name: "a", ID: "empty"}, {Name: "b", ID: "id"}}, want},
		{[]Container{{Name: "a", ID: "empty"}}, nil},
		{nil, nil},
	} {
		pod := podOf(c.containers...)
		pod.Sandbox = "empty"
		got := s.takePod(t.Context(), pod, true).Interfaces
		if len(got) != len(c.want) || len(got) > 0 && got[0].Name != c.want[0].Name {
			t.Errorf("%+v: interfaces %+v, want %+v", c.containers, got, c.want)
		}
	}
}

func TestSummary(t *testing.T) {
	s, clock := newSampler(t, false, podOf(Container{Name: "c", ID: "id", Started: start}, Container{Name: "ended", ID: "gone"}))
	s.keepBase(t.Context())
	s.measureDisk(t.Context())
	clock.Step(4 * time.Second)
	summary, err := s.Summary(t.Context(), false)
	if err != nil || len(summary.Pods) != 1 || len(summary.Pods[0].Containers) != 1 {
		t.Fatalf("%+v, %v", summary, err)
	}
	p := summary.Pods[0]
	c := p.Containers[0]
	if *c.CPU.UsageNanoCores != 5e8 || *c.CPU.UsageCoreNanoSeconds != 2e9 || c.CPU.PSI.Some.Total != 5000 || *p.CPU.UsageNanoCores != 5e8 {
		t.Errorf("CPU %+v", c.CPU)
	}
	if *c.Memory.WorkingSetBytes != 40 || *c.Memory.AvailableBytes != 60 || *p.Memory.AvailableBytes != 60 || *c.Swap.SwapUsageBytes != 6 {
		t.Errorf("memory %+v", c.Memory)
	}
	files := *p.VolumeStats[0].UsedBytes // the directory counts as well
	if *c.Rootfs.UsedBytes != 100 || *c.Logs.UsedBytes != 50 || files < 8192 || *p.EphemeralStorage.UsedBytes != 150+files {
		t.Errorf("disk %+v, %+v, %+v", c.Rootfs, c.Logs, p.EphemeralStorage)
	}
	if claim := p.VolumeStats[1]; claim.PVCRef.Name != "data" || *claim.CapacityBytes == 0 {
		t.Errorf("claim %+v", claim)
	}
	if *p.ProcessStats.ProcessCount != 3 || summary.Node.Fs == nil || summary.Node.Rlimit.MaxPID == nil || summary.Node.Network == nil {
		t.Errorf("%+v", summary.Node)
	}
	own := summary.Node.SystemContainers[len(summary.Node.SystemContainers)-1]
	if own.Name != statsapi.SystemContainerKubelet || own.CPU.UsageNanoCores == nil || *own.CPU.UsageCoreNanoSeconds == 0 || *own.Memory.WorkingSetBytes == 0 {
		t.Errorf("the agent's process: %+v", own)
	}
	only, err := s.Summary(t.Context(), true)
	if err != nil || only.Node.Fs != nil || only.Pods[0].VolumeStats != nil || only.Pods[0].Network != nil || only.Pods[0].Containers[0].Rootfs != nil {
		t.Errorf("only CPU and memory: %+v, %v", only, err)
	}
}

// TestRuntimeChoosesCgroups: then there is what CRI measures, and no more.
func TestRuntimeChoosesCgroups(t *testing.T) {
	s, _ := newSampler(t, true, podOf(Container{Name: "c", ID: "id"}))
	summary, err := s.Summary(t.Context(), false)
	if err != nil || len(summary.Pods) != 1 {
		t.Fatalf("%+v, %v", summary, err)
	}
	p := summary.Pods[0]
	if c := p.Containers[0]; p.CPU != nil || *c.CPU.UsageCoreNanoSeconds != 1e9 || *c.Memory.WorkingSetBytes != 5 || c.Memory.RSSBytes != nil {
		t.Errorf("%+v", p)
	}
	if got, err := s.Resources(t.Context()); err != nil || got.Pods[0].Usage != nil || got.Pods[0].Containers[0].Memory != 5 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestContainers: the metrics of a container have cAdvisor's names and labels, and can be gathered.
func TestContainers(t *testing.T) {
	s, clock := newSampler(t, false, podOf(Container{Name: "c", ID: "id", Image: "i", Started: start}))
	clock.Step(time.Second)
	values := gather(t, s.Containers(Machine{BootID: "b", CPUs: 2}))
	const labels = "container=c,id=/k/podu/id,image=i,name=id,namespace=ns,pod=p"
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if values["container_file_descriptors "+labels] < 3 {
		t.Errorf("the container has %v open files", values["container_file_descriptors "+labels])
	}
	if _, ok := values["container_sockets "+labels]; !ok {
		t.Error("the sockets of the container are not counted")
	}
	for name, want := range map[string]float64{
		"container_ulimits_soft container=c,id=/k/podu/id,image=i,name=id,namespace=ns,pod=p,ulimit=max_open_files":                                       float64(files.Cur),
		"container_processes container=,id=/k/podu,image=,name=,namespace=ns,pod=p":                                                                       0,
		"container_cpu_usage_seconds_total container=c,cpu=total,id=/k/podu/id,image=i,name=id,namespace=ns,pod=p":                                        0.5,
		"container_memory_working_set_bytes " + labels:                                                                                                    40,
		"container_memory_rss " + labels:                                                                                                                  10,
		"container_spec_memory_limit_bytes " + labels:                                                                                                     1000,
		"container_spec_memory_swap_limit_bytes " + labels:                                                                                                0,
		"container_oom_events_total " + labels:                                                                                                            2,
		"container_pressure_cpu_waiting_seconds_total " + labels:                                                                                          5e-6,
		"container_pressure_cpu_stalled_seconds_total " + labels:                                                                                          0,
		"container_fs_reads_bytes_total container=c,device=/dev/sda,id=/k/podu/id,image=i,name=id,namespace=ns,pod=p":                                     4096,
		"container_fs_reads_total container=c,device=/dev/sda,id=/k/podu/id,image=i,name=id,namespace=ns,pod=p":                                           2,
		"container_fs_writes_bytes_total container=c,device=/dev/sda,id=/k/podu/id,image=i,name=id,namespace=ns,pod=p":                                    512,
		"container_fs_writes_total container=c,device=/dev/sda,id=/k/podu/id,image=i,name=id,namespace=ns,pod=p":                                          1,
		"container_blkio_device_usage_total container=c,device=/dev/sda,id=/k/podu/id,image=i,major=8,minor=0,name=id,namespace=ns,operation=Write,pod=p": 512,
		"container_processes " + labels:                                                                                                                   1,
		"container_threads " + labels:                                                                                                                     5,
		"container_threads_max " + labels:                                                                                                                 0,
		"container_memory_max_usage_bytes " + labels:                                                                                                      90,
		"container_memory_events_high_total " + labels:                                                                                                    4,
		"container_memory_events_max_total " + labels:                                                                                                     7,
		"container_spec_memory_reservation_limit_bytes " + labels:                                                                                         500,
		"container_start_time_seconds " + labels:                                                                                                          1000,
		"machine_cpu_cores boot_id=b,machine_id=,system_uuid=":                                                                                            2,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", name, got, ok, want)
		}
	}
}

func TestRate(t *testing.T) {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	b := bases{
		newest: points{at(10), map[string]time.Duration{"a": 3 * time.Second, "new": 0}},
		before: points{at(0), map[string]time.Duration{"a": time.Second}},
	}
	for _, tc := range []struct {
		cgroup string
		cpu    time.Duration
		at     int
		want   string
	}{
		{"a", 4 * time.Second, 14, "250000000"},
		{"a", 4 * time.Second, 11, "272727272"}, // the newest point is too new
		{"a", 2 * time.Second, 14, "none"},      // the counter has started again
		{"new", time.Second, 14, "250000000"},
		{"new", time.Second, 11, "none"},
		{"unknown", time.Second, 14, "none"},
	} {
		got := "none"
		if rate := b.rate(tc.cgroup, tc.cpu, at(tc.at)); rate != nil {
			got = fmt.Sprint(*rate)
		}
		if got != tc.want {
			t.Errorf("%s at %d: %s, want %s", tc.cgroup, tc.at, got, tc.want)
		}
	}
}

func TestParse(t *testing.T) {
	interfaces, err := parseInterfaces("Inter-|   Receive\n face |bytes\n    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n  eth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n")
	if err != nil || len(interfaces) != 1 || interfaces[0] != (Interface{"eth0", Traffic{1, 2, 3, 4}, Traffic{5, 6, 7, 8}}) {
		t.Errorf("%v, %v", interfaces, err)
	}
	for _, wrong := range []string{"eth0: 1 2\n", "eth0: a b c d e f g h i j k l\n"} {
		if _, err := parseInterfaces(wrong); err == nil {
			t.Errorf("%q was parsed", wrong)
		}
	}
	if got := defaultInterface("Iface\tDestination\nens3\t0000A8C0\nens4\t00000000\n"); got != "ens4" {
		t.Errorf("default interface %q", got)
	}
	if got := runningProcesses("0.20 0.18 0.12 1/80 11206\n"); got == nil || *got != 80 {
		t.Errorf("processes %v", got)
	}
	if got := runningProcesses("0.20"); got != nil {
		t.Errorf("processes %v of nothing", got)
	}
}
