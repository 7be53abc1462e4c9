// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: %s, imagePullPolicy: Never, command: [sleep, "1000000"]}]
`

func (m *machine) available(t *testing.T, want string) {
	t.Helper()
	await(t, want+" available pods", func() error {
		got, err := m.try("", "get", "deployment", "web", "-o=jsonpath={.status.availableReplicas}")
		if err == nil && got != want {
			err = fmt.Errorf("there are %q", got)
		}
		return err
	})
}

func (m *machine) testDrain(t *testing.T) {
	m.apply(t, fmt.Sprintf(deployment, busybox))
	m.available(t, "2")
	node := m.kubectl(t, "get", "nodes", "-o=jsonpath={.items[0].metadata.name}")
	m.kubectl(t, "drain", node, "--ignore-daemonsets", "--timeout=4m")
	is(t, "pods with a node after drain", m.kubectl(t, "get", "pods", "-l=app=web", "-o=jsonpath={.items[*].spec.nodeName}"), "")
	has(t, "taints", m.kubectl(t, "get", "node", node, "-o=jsonpath={.spec.taints[*].key}"), "node.kubernetes.io/unschedulable")
	m.kubectl(t, "uncordon", node)
	m.available(t, "2")
	m.kubectl(t, "delete", "deployment", "web")
}

// ending is a container that writes into the machine when it is told to end, and takes a few seconds to end.
func ending(name string) string {
	return `{volumeMounts: [{name: results, mountPath: /results}], lifecycle: {preStop: {exec: {command: [sh, -c, "date +%s >/results/` + name + `; sleep 4"]}}}}`
}

const results = "volumes: [{name: results, hostPath: {path: /results}}]"

// testReboot reboots the machine: pods end by priority, then the cluster and its pods come back.
func (m *machine) testReboot(t *testing.T) {
	m.apply(t, fmt.Sprintf(deployment, busybox))
	m.sh(t, "cat >/etc/kubernetes/manifests/fixed.yaml <<'END'\n"+pod("fixed", "{}", none)+"END")
	pods := pod("usual", "{"+results+"}", ending("usual")) + pod("critical", "{priorityClassName: system-node-critical, "+results+"}", ending("critical"))
	// A pod whose containers end with 0 would succeed.
	m.apply(t, strings.NewReplacer("exit 0", "exit 1", "terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 20").Replace(pods))
	node := m.kubectl(t, "get", "nodes", "-o=jsonpath={.items[0].metadata.name}")
	m.ready(t, "usual", "critical", "fixed-"+node)
	has(t, "inhibitors", m.sh(t, "systemd-inhibit --list --no-pager"), "delay")
	bootID := m.sh(t, "cat /proc/sys/kernel/random/boot_id")

	_, _ = m.shell(t.Context(), "systemctl reboot")
	await(t, "reboot", func() error {
		now, err := m.shell(t.Context(), "cat /proc/sys/kernel/random/boot_id")
		if err == nil && now == bootID {
			err = fmt.Errorf("the machine has not rebooted yet")
		}
		return err
	})
	await(t, "the service", func() error {
		_, err := m.shell(t.Context(), "systemctl is-active kindred")
		return err
	})
	m.ready(t, "fixed-"+node)
	m.available(t, "2")

	ended := func(name string) int {
		at, err := strconv.Atoi(m.sh(t, "cat /results/"+name))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if usual, critical := ended("usual"), ended("critical"); critical < usual+4 {
		t.Errorf("the critical pod was ended %d s after the other, want at least 4 s: after it", critical-usual)
	}
	for _, name := range []string{"usual", "critical"} {
		is(t, "phase of "+name, m.field(t, name, ".status.phase"), "Failed")
		is(t, "reason of "+name, m.field(t, name, ".status.reason"), "Terminated")
		is(t, "message of "+name, m.field(t, name, ".status.message"), "Pod was terminated in response to imminent node shutdown.")
	}
	is(t, "Ready", m.kubectl(t, "get", "node", node, `-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}`), "True")
	events := m.kubectl(t, "get", "events", "--field-selector=involvedObject.kind=Node", "-o=jsonpath={.items[*].reason}")
	for _, reason := range []string{"Shutdown", "Rebooted", "Starting"} {
		has(t, "events of the node", events, reason)
	}
	m.sh(t, "rm /etc/kubernetes/manifests/fixed.yaml")
	m.kubectl(t, "delete", "deployment", "web")
}
