// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// evictionConfig measures often, and evicts when the node's small file system has less than half of its 100 MiB.
const evictionConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
volumeStatsAggPeriod: 500ms
evictionHard: {nodefs.available: 50Mi}
evictionPressureTransitionPeriod: 12s
`

// clusterWithSmallDisk starts a cluster whose node has 100 MiB for the files of pods.
func clusterWithSmallDisk(t *testing.T) *cluster {
	t.Helper()
	needContainers(t)
	c, err := newCluster()
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(c.dir, "node")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.logs())
		}
		if err := errors.Join(unmount(c, node), c.remove()); err != nil {
			t.Error(err)
		}
	})
	c.mustStart(t, "--no-node") // makes the data directory
	c.terminate(t)
	must(os.MkdirAll(node, 0o755))
	must(unix.Mount("tmpfs", node, "tmpfs", 0, "size=100m"))
	config := filepath.Join(t.TempDir(), "kubelet.yaml")
	must(os.WriteFile(config, []byte(evictionConfig), 0o600))
	c.mustStart(t, "--kubelet-config", config)
	must(c.loadImages())
	return c
}

// unmount removes the small disk, once nothing on it is in use.
func unmount(c *cluster, dir string) error {
	if c.running() {
		if err := c.signal(unix.SIGTERM); err != nil {
			return err
		}
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// writer is a pod that writes MiB to its volume or, with an empty one, to its own layer, and ignores SIGTERM.
func writer(name string, mib int, dir, volume, requests, limits string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - name: c
    image: %s
    command: [sh, -c, "trap '' TERM; mkdir -p %[4]s; dd if=/dev/zero of=%[4]s/file bs=1048576 count=%[3]d 2>/dev/null; while :; do sleep 0.1; done"]
    resources: {requests: {%[6]s}, limits: {%[7]s}}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {%[5]s}}]
---
`, name, image, mib, dir, volume, requests, limits)
}

// isEvicted waits for the end of a pod, and checks how it ended.
func (s *session) isEvicted(name, message string) *corev1.Pod {
	s.Helper()
	s.phase(name, corev1.PodFailed)
	p := s.pod(name)
	if p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, message) {
		s.Errorf("pod %s failed with %s: %q, want Evicted: %q", name, p.Status.Reason, p.Status.Message, message)
	}
	if restarts := s.containerStatus(name).RestartCount; restarts != 0 {
		s.Errorf("pod %s was restarted %d times", name, restarts)
	}
	return p
}

// TestEviction: pods that exceed a limit of local storage are evicted, also if Kindred gets SIGKILL meanwhile. On a node
// whose disk runs full, pods are evicted in order until enough is free; the node's condition and taint come and go, and
// meanwhile it admits no pod.
func TestEviction(t *testing.T) {
	c := clusterWithSmallDisk(t)
	s := newSession(t, c)

	s.apply(writer("volume", 3, "/v", "sizeLimit: 1Mi", "", "") +
		writer("layer", 4, "/layer", "", "", "ephemeral-storage: 2Mi") +
		writer("within", 1, "/v", "sizeLimit: 5Mi", "", "ephemeral-storage: 9Mi"))
	s.isEvicted("volume", `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `)
	s.isEvicted("layer", `Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. `)
	s.contains(s.kubectl("get", "events", "--field-selector", "reason=Evicted"), "Usage of EmptyDir volume", "exceeds the total limit of containers 2Mi")

	// Kindred is killed between the decision and the end of the pod.
	s.apply(writer("killed", 3, "/v", "sizeLimit: 1Mi", "", ""))
	s.eventually("the eviction is stored", func() error {
		if found, _ := filepath.Glob(filepath.Join(c.dir, "node/pods", string(s.pod("killed").UID), "eviction.json")); len(found) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	c.kill(t)
	c.again(t)
	s.isEvicted("killed", `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `)
	if p := s.pod("within"); p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod within its limits is %s: %s", p.Status.Phase, p.Status.Message)
	}

	// "requests" stores less than it requests, and "small" less than "big".
	s.apply(writer("requests", 20, "/v", "", "ephemeral-storage: 30Mi", "") + writer("small", 8, "/v", "", "", ""))
	s.kubectl("wait", "--for=condition=Ready", "pod/requests", "pod/small", "--timeout=60s")
	s.apply(writer("big", 30, "/v", "", "", ""))
	s.has("True", `{.items[0].status.conditions[?(@.type=="DiskPressure")].status}`, "nodes")
	s.has("NoSchedule", `{.items[0].spec.taints[?(@.key=="node.kubernetes.io/disk-pressure")].effect}`, "nodes")
	s.contains(c.up.out.String(), "has DiskPressure: no pod is placed on it until more is free, and pods may be evicted (nodefs.available is ")
	s.apply(strings.Replace(writer("late", 1, "/v", "", "", ""), "spec:\n", "spec:\n  nodeName: "+s.nodes()[0]+"\n", 1))
	if p := s.isEvicted("late", "Pod was rejected: The node had condition: [DiskPressure]. "); len(p.Status.ContainerStatuses) > 0 {
		t.Errorf("the refused pod ran: %+v", p.Status.ContainerStatuses)
	}
	big := s.isEvicted("big", "The node was low on resource: ephemeral-storage. Threshold quantity: 50Mi, available: ")
	target := corev1.PodCondition{}
	for _, condition := range big.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget {
			target = condition
		}
	}
	if target.Status != corev1.ConditionTrue || target.Reason != "TerminationByKubelet" || target.Message != big.Status.Message {
		t.Errorf("DisruptionTarget is %+v; %+v", target, big.Status.Conditions)
	}
	s.contains(inNamespace(t, c, "default").kubectl("get", "events", "--field-selector", "reason=EvictionThresholdMet"), "Attempting to reclaim ephemeral-storage")
	s.contains(s.kubectl("get", "events", "--field-selector", "reason=Evicted,involvedObject.name=big", "-o", "yaml"), "starved_resource: ephemeral-storage")
	s.within(2*time.Minute, "the pressure is over", func() error {
		return s.equals("False", `{.items[0].status.conditions[?(@.type=="DiskPressure")].status}`, "nodes")
	})
	s.has("", `{.items[0].spec.taints[?(@.key=="node.kubernetes.io/disk-pressure")].effect}`, "nodes")
	for _, name := range []string{"requests", "small", "within"} {
		if p := s.pod(name); p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s: %s", name, p.Status.Phase, p.Status.Message)
		}
	}
}
