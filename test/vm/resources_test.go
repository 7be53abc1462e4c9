// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func (m *machine) summary(t *testing.T) statsapi.Summary {
	t.Helper()
	node := m.kubectl(t, "get", "nodes", "-o=jsonpath={.items[0].metadata.name}")
	var s statsapi.Summary
	if err := json.Unmarshal([]byte(m.kubectl(t, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/stats/summary")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// testSwap: with LimitedSwap, a burstable container may swap in proportion to its request, others may not.
func (m *machine) testSwap(t *testing.T) {
	m.apply(t, pod("guaranteed", "{}", guaranteed)+pod("burstable", "{}", burstable)+pod("besteffort", "{}", none))
	m.ready(t, "guaranteed", "burstable", "besteffort")
	m.limits(t, m.container(t, "guaranteed"), map[string]string{"memory.swap.max": "0"})
	m.limits(t, m.container(t, "besteffort"), map[string]string{"memory.swap.max": "0"})
	limit, err := strconv.ParseInt(m.sh(t, "cat "+m.container(t, "burstable")+"/memory.swap.max"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var swap, memory int64
	if _, err := fmt.Sscan(m.sh(t, "awk '/^MemTotal|^SwapTotal/ {printf \"%.0f \", $2 * 1024}' /proc/meminfo"), &memory, &swap); err != nil {
		t.Fatal(err)
	}
	if want := 32 << 20 * swap / memory; limit < want-8192 || limit > want+8192 {
		t.Errorf("the burstable container may swap %d, want %d", limit, want)
	}
	if s := m.summary(t); s.Node.Swap == nil || s.Node.Swap.SwapAvailableBytes == nil || *s.Node.Swap.SwapAvailableBytes == 0 {
		t.Errorf("swap in /stats/summary: %+v", s.Node.Swap)
	}
}

// testOOMScores: root has CAP_SYS_RESOURCE, so that negative scores are set as well.
func (m *machine) testOOMScores(t *testing.T) {
	m.apply(t, pod("guaranteed", "{}", guaranteed)+pod("besteffort", "{}", none))
	m.ready(t, "guaranteed", "besteffort")
	score := func(name string) string {
		return m.sh(t, "cat /proc/$(head -1 "+m.container(t, name)+"/cgroup.procs)/oom_score_adj")
	}
	is(t, "score of a guaranteed container", score("guaranteed"), "-997")
	is(t, "score of a best-effort container", score("besteffort"), "1000")
	is(t, "scores of pause", m.sh(t, "for p in $(pgrep -x pause); do cat /proc/$p/oom_score_adj; done | sort -u"), "-998")
	is(t, "score of the service", m.sh(t, "cat /proc/$(systemctl show -p MainPID --value kindred)/oom_score_adj"), "-999")
}

// testPressure: the kernel's pressure stall information is in /stats/summary.
func (m *machine) testPressure(t *testing.T) {
	m.apply(t, pod("busy", "{}", "{}"))
	m.ready(t, "busy")
	await(t, "pressure in /stats/summary", func() error {
		s := m.summary(t)
		if s.Node.CPU == nil || s.Node.CPU.PSI == nil || s.Node.Memory.PSI == nil || s.Node.IO == nil || s.Node.IO.PSI == nil {
			return fmt.Errorf("the node has none: %+v", s.Node)
		}
		if len(s.Pods) == 0 {
			return fmt.Errorf("there are no pods")
		}
		for _, p := range s.Pods {
			if p.CPU == nil || p.CPU.PSI == nil {
				return fmt.Errorf("pod %s has none", p.PodRef.Name)
			}
		}
		return nil
	})
}

// testProjectQuotas: an emptyDir with a limit is a project, and its pod is evicted beyond the limit.
func (m *machine) testProjectQuotas(t *testing.T) {
	m.apply(t, pod("full", "{volumes: [{name: v, emptyDir: {sizeLimit: 8Mi}}]}", "{volumeMounts: [{name: v, mountPath: /v}]}"))
	m.ready(t, "full")
	dir := path.Join("/var/lib/kindred/node/pods", m.field(t, "full", ".metadata.uid"), "volumes/kubernetes.io~empty-dir/v")
	if project := strings.Fields(m.sh(t, "lsattr -pd "+dir))[0]; project == "0" {
		t.Errorf("%s is not in a project", dir)
	}
	m.kubectl(t, "exec", "full", "--", "dd", "if=/dev/zero", "of=/v/file", "bs=1M", "count=16")
	// The container ends with 0, so that the pod succeeds: its event has the reason.
	await(t, "eviction of the pod", func() error {
		got := m.kubectl(t, "get", "events", "--field-selector=reason=Evicted,involvedObject.name=full", "-o=jsonpath={.items[*].message}")
		if want := `Usage of EmptyDir volume "v" exceeds the limit "8Mi".`; strings.TrimSpace(got) != want {
			return fmt.Errorf("its events are %q, want %q", got, want)
		}
		return nil
	})
	await(t, "end of the pod", func() error {
		if got := m.field(t, "full", ".status.phase"); got != "Succeeded" {
			return fmt.Errorf("its phase is %q", got)
		}
		return nil
	})
}
