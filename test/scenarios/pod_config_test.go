// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
)

// TestConfiguration passes values to a container in every way: environment and volumes, from
// ConfigMaps, Secrets and the pod itself.
func TestConfiguration(t *testing.T) {
	s := withNode(t)
	s.kubectl("create", "configmap", "settings", "--from-literal=colour=blue", "--from-literal=size=small")
	s.kubectl("create", "secret", "generic", "keys", "--from-literal=password=hunter2")
	s.apply(`
apiVersion: v1
kind: Pod
metadata:
  name: configured
  labels: {tier: back}
  annotations: {note: "first"}
spec:
  hostname: host-name
  volumes:
  - {name: settings, configMap: {name: settings, defaultMode: 0440, items: [{key: colour, path: deep/colour}]}}
  - {name: keys, secret: {secretName: keys}}
  - {name: labels, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: notes, fieldRef: {fieldPath: metadata.annotations}}]}}
  - name: all
    projected:
      sources:
      - {configMap: {name: settings}}
      - {secret: {name: keys}}
      - {downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}]}}
  - {name: optional, configMap: {name: absent, optional: true}}
  - {name: scratch, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  containers:
  - name: c
    image: "` + image + `"
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
    resources: {limits: {cpu: 200m, memory: 64Mi}}
    envFrom: [{prefix: S_, configMapRef: {name: settings}}, {secretRef: {name: absent, optional: true}}]
    env:
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: BOTH, value: "$(POD)-$(S_size)-$$(POD)-$(NOBODY)"}
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: keys, mountPath: /keys, readOnly: true}
    - {name: labels, mountPath: /labels}
    - {name: all, mountPath: /all}
    - {name: optional, mountPath: /optional}
    - {name: scratch, mountPath: /scratch}
    - {name: all, mountPath: /one/colour, subPath: colour}
`)
	s.ready("configured")
	in := func(want, script string) {
		s.Helper()
		s.prints(want, "exec", "configured", "--", "sh", "-c", script)
	}
	in("blue small hunter2 configured 64\n", "echo $S_colour $S_size $PASSWORD $POD $MEMORY")
	in(s.pod("configured").Status.PodIP+"\n", "echo $IP")
	in("configured-small-$(POD)-$(NOBODY)\n", "echo \"$BOTH\"")
	in("host-name\n", "hostname")
	in("blue\n", "cat /settings/deep/colour; echo")
	in("-r--r-----\n", "ls -lL /settings/deep/colour | cut -c1-10")
	in("hunter2\n", "cat /keys/password; echo")
	in("tier=\"back\"\n", "cat /labels/labels; echo")
	in("blue small hunter2 200\n", "echo $(cat /all/colour /all/size) > /dev/null; echo $(cat /all/colour) $(cat /all/size) $(cat /all/password) $(cat /all/cpu)")
	in("0\n", "ls /optional | wc -l")
	in("tmpfs\n", "df -T /scratch | tail -1 | awk '{print $2}'")
	in("blue\n", "cat /one/colour; echo")
	s.refused([]string{"Read-only file system"}, "exec", "configured", "--", "touch", "/keys/new")

	// Changes are visible without a restart, and atomically; a subPath does not change.
	s.kubectl("patch", "configmap", "settings", "-p", `{"data":{"colour":"red"}}`)
	s.kubectl("annotate", "pod", "configured", "note=second", "--overwrite")
	s.within(2*patience, "changes reach the volumes", func() error {
		out := s.kubectl("exec", "configured", "--", "sh", "-c", "cat /settings/deep/colour /all/colour /one/colour /labels/notes")
		if !strings.HasPrefix(out, "redredblue") || !strings.Contains(out, `note="second"`) {
			return fmt.Errorf("%q", out)
		}
		return nil
	})

	// The pod waits for missing objects, and an event names them.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: waiting}
spec:
  volumes: [{name: later, configMap: {name: later}}]
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"], volumeMounts: [{name: later, mountPath: /later}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: keyless}
spec:
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"], env: [{name: X, valueFrom: {configMapKeyRef: {name: settings, key: nokey}}}]}]
`)
	s.eventually("the missing ConfigMap is named", func() error {
		if out := s.kubectl("describe", "pod", "waiting"); !containsAll(out, "FailedMount", `configmap "later" not found`) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.eventually("the missing key is named", func() error {
		w := s.containerStatus("keyless").State.Waiting
		if w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, "couldn't find key nokey in ConfigMap "+s.namespace+"/settings") {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	s.kubectl("create", "configmap", "later")
	s.kubectl("patch", "configmap", "settings", "-p", `{"data":{"nokey":"here"}}`)
	s.within(2*patience, "both run when they have what they need", func() error {
		for _, name := range []string{"waiting", "keyless"} {
			if !s.containerStatus(name).Ready {
				return fmt.Errorf("%s: %+v", name, s.containerStatus(name).State)
			}
		}
		return nil
	})
}

// TestSecurityContext checks the user and the capabilities of a container.
func TestSecurityContext(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: confined}
spec:
  securityContext: {runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000], sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "80"}]}
  volumes: [{name: scratch, emptyDir: {}}]
  containers:
  - name: c
    image: "` + image + `"
    command: [sleep, "3600"]
    securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  - name: root
    image: "` + image + `"
    command: [sleep, "3600"]
    securityContext: {runAsUser: 0, capabilities: {add: [NET_ADMIN]}}
  - name: privileged
    image: "` + image + `"
    command: [sleep, "3600"]
    securityContext: {runAsUser: 0, privileged: true}
`)
	s.ready("confined")
	in := func(want, container, script string) {
		s.Helper()
		s.prints(want, "exec", "confined", "-c", container, "--", "sh", "-c", script)
	}
	in("1000 2000 2000 3000 4000\n", "c", "echo $(id -u) $(id -g) $(id -G)")
	s.refused([]string{"Read-only file system"}, "exec", "confined", "-c", "c", "--", "touch", "/tmp/x")
	in("3000\n", "c", "touch /scratch/x; stat -c %g /scratch/x")
	in("0000000000000000 1\n", "c", "echo $(awk '/CapEff/ {print $2}' /proc/self/status) $(awk '/NoNewPrivs/ {print $2}' /proc/self/status)")
	in("80\n", "c", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start")
	in("0\n", "root", "id -u")
	in("yes\n", "root", "ip link add dummy9 type dummy 2>/dev/null || ip link set lo mtu 60000; echo yes")
	s.refused([]string{"permission denied"}, "exec", "confined", "-c", "root", "--", "mount", "-t", "tmpfs", "none", "/tmp")
	in("yes\n", "privileged", "mount -t tmpfs none /tmp && echo yes")

	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: notroot}
spec:
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"], securityContext: {runAsNonRoot: true}}]
`)
	s.eventually("an image that runs as root is refused", func() error {
		w := s.containerStatus("notroot").State.Waiting
		if w == nil || w.Reason != "CreateContainerConfigError" || !strings.HasPrefix(w.Message, "container has runAsNonRoot and image will run as root") {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
}

// TestResources: requests and limits are set in the container's cgroup, and the memory limit is
// enforced.
func TestResources(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  containers:
  - name: c
    image: "` + image + `"
    command: [sleep, "3600"]
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 250m, memory: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: "` + image + `"
    command: [sh, -c, "exec tail /dev/zero"]
    resources: {limits: {memory: 24Mi}}
`)
	s.ready("limited")
	s.prints("Burstable", "get", "pod", "limited", "-o", "jsonpath={.status.qosClass}")
	// Works with both versions of cgroups.
	s.prints("67108864\n25000\n", "exec", "limited", "--", "sh", "-c",
		"cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max;"+
			"cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max")
	s.phase("greedy", "Failed")
	if ended := s.containerStatus("greedy").State.Terminated; ended == nil || ended.Reason != "OOMKilled" || ended.ExitCode != 137 {
		t.Errorf("a container that took too much ended as %+v", ended)
	}
	s.contains(s.kubectl("describe", "node", s.pod("limited").Spec.NodeName), "Allocated resources:", s.namespace)
}

// TestPodFacts checks what every container has without configuration.
func TestPodFacts(t *testing.T) {
	s := withNode(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: facts}
spec:
  subdomain: sub
  hostAliases: [{ip: 10.9.8.7, hostnames: [alias.example]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.1], searches: [example.com], options: [{name: ndots, value: "3"}]}
  shareProcessNamespace: true
  containers:
  - {name: a, image: "` + image + `", command: [sleep, "3601"], terminationMessagePath: /dev/termination-log}
  - {name: b, image: "` + image + `", command: [sleep, "3602"]}
`)
	s.ready("facts")
	s.contains(s.kubectl("exec", "facts", "-c", "a", "--", "cat", "/etc/hosts"), "10.9.8.7\talias.example", s.pod("facts").Status.PodIP+"\tfacts.sub."+s.namespace+".svc.cluster.local\tfacts")
	s.prints("search example.com\nnameserver 192.0.2.1\noptions ndots:3\n", "exec", "facts", "-c", "a", "--", "cat", "/etc/resolv.conf")
	s.contains(s.kubectl("exec", "facts", "-c", "a", "--", "ps"), "sleep 3601", "sleep 3602")
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: lastwords}
spec:
  restartPolicy: Never
  containers:
  - {name: said, image: "` + image + `", command: [sh, -c, "echo farewell > /dev/termination-log; exit 1"]}
  - {name: logged, image: "` + image + `", terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo in the log; exit 1"]}
`)
	s.phase("lastwords", "Failed")
	for _, status := range s.pod("lastwords").Status.ContainerStatuses {
		want := map[string]string{"said": "farewell\n", "logged": "in the log\n"}[status.Name]
		if ended := status.State.Terminated; ended == nil || ended.Message != want {
			t.Errorf("%s: %+v, want the message %q", status.Name, ended, want)
		}
	}
}
