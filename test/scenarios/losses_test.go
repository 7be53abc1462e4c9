// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMachinesLostForGood: a server and a node are lost with all that they had. The others go on without them when they are told, and new
// machines take their places.
func TestMachinesLostForGood(t *testing.T) {
	needFaults(t)
	if userRuntime != "" {
		t.Skip("several machines cannot share one runtime")
	}
	l := newLAN(t)
	home := l.machine(1)
	first := home.serve(stoppedCluster(t, ""), "--etcd-embedded", "--no-node")
	second := l.server(2, append(serverInvitation(t, first), "--no-node")...)
	place := l.machine(3)
	third := place.serve(stoppedCluster(t, ""), append(serverInvitation(t, first), "--no-node")...)
	s := newSession(t, first)
	near, far := l.machine(8), l.machine(9)
	processes := map[*otherMachine]*process{}
	for name, m := range map[string]*otherMachine{"near": near, "far": far} {
		m.resetAfterwards()
		processes[m] = m.join(append(s.invitation(), "--node-name", name)...)
		m.loadImages()
	}
	again := s.losesServer(place, third)
	s.losesNodeForGood(far, processes[far])
	s.losesServers(l, home, first, second, again)
}

// losesServer: a server that is lost for good is removed, and its machine becomes a server again, with an empty directory.
func (s *session) losesServer(place *otherMachine, lost *cluster) (again *cluster) {
	s.Helper()
	lost.kill(s.T)
	if r := lost.run("reset"); r.code != 0 {
		s.Fatalf("reset: %s", r.err)
	}
	s.removesLost(1)
	s.hasMembers(2)
	if r := s.cluster.run("server", "remove", "missing"); r.code != 1 || !strings.Contains(r.err, "no server has that name") {
		s.Errorf("removal of a server that there is not: %d, %s%s", r.code, r.out, r.err)
	}
	again = place.serve(stoppedCluster(s.T, ""), append(serverInvitation(s.T, s.cluster), "--no-node")...)
	s.hasMembers(3)
	on := *s
	on.cluster = again
	on.kubectl("get", "nodes")
	return again
}

// removesLost waits until status names so many lost servers, and removes them as it says.
func (s *session) removesLost(count int) {
	s.Helper()
	var names []string
	s.eventually("status names the servers that are lost", func() error {
		r := s.cluster.run("status")
		names = nil
		for _, rest := range strings.Split(r.out, "kindred server remove ")[1:] {
			name, _, _ := strings.Cut(rest, `"`)
			names = append(names, name)
		}
		if r.code != 1 || len(names) != count || !strings.Contains(r.err, "is lost") {
			return fmt.Errorf("%d\n%s%s", r.code, r.out, r.err)
		}
		return nil
	})
	for _, name := range names {
		if r := s.cluster.run("server", "remove", name); r.code != 0 {
			s.Fatalf("server remove: %s", r.err)
		}
	}
}

// losesServers: after the loss of all servers, a backup makes one, to which the nodes return with their pods, and which others join.
func (s *session) losesServers(l *lan, home *otherMachine, all ...*cluster) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "cluster.backup")
	s.kubectl("create", "configmap", "kept")
	s.backUp(file)
	pod := s.pod("db-0")
	for _, c := range all {
		c.kill(s.T)
		if r := c.run("reset"); r.code != 0 {
			s.Fatalf("reset: %s", r.err)
		}
	}
	restored := stoppedCluster(s.T, "")
	if r := restored.run("restore", file); r.code != 0 {
		s.Fatalf("restore: %s", r.err)
	}
	home.serve(restored, "--etcd-embedded", "--no-node")
	on := inNamespace(s.T, restored, s.namespace)
	on.kubectl("get", "configmap", "kept")
	on.removesLost(len(all))
	on.hasMembers(1)
	if now := on.pod("db-0"); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		s.Errorf("the pod of a node is %s, restarted %d times, and was %s", now.UID, now.Status.ContainerStatuses[0].RestartCount, pod.UID)
	}
	other := l.machine(4).serve(stoppedCluster(s.T, ""), append(serverInvitation(s.T, restored), "--no-node")...)
	on.hasMembers(2)
	inNamespace(s.T, other, s.namespace).kubectl("get", "configmap", "kept")
}

// hasMembers waits until status finds so many members of etcd, and nothing wrong.
func (s *session) hasMembers(want int) {
	s.Helper()
	s.eventually(fmt.Sprintf("the cluster is complete with %d members", want), func() error {
		r := s.cluster.run("status", "-o", "json")
		var status struct{ EtcdMembers, Servers []any }
		if err := json.Unmarshal([]byte(r.out), &status); err != nil {
			return err
		}
		if r.code != 0 || len(status.EtcdMembers) != want || len(status.Servers) != want {
			return fmt.Errorf("%d, %d members and %d servers: %s", r.code, len(status.EtcdMembers), len(status.Servers), r.err)
		}
		return nil
	})
}

// losesNodeForGood: the pods of a node that is lost for good, those of a StatefulSet among them, run on another one when its Node is deleted.
// Its name is then free for another machine.
func (s *session) losesNodeForGood(lost *otherMachine, p *process) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchFields: [{key: metadata.name, operator: In, values: [far]}]}}]}}
      containers: [{name: main, image: %q, command: [sleep, "3600"]}]
`, image))
	s.landsOn("db-0", "far")
	if err := p.cmd.Process.Kill(); err != nil { // nsenter has become kindred
		s.Fatal(err)
	}
	<-p.done
	if r := lost.run("reset"); r.code != 0 {
		s.Fatalf("reset: %s", r.err)
	}
	s.kubectl("delete", "node", "far")
	s.landsOn("db-0", "near")
	lost.join(append(s.invitation(), "--node-name", "far")...)
	lost.loadImages()
	s.kubectl("delete", "pod", "db-0")
	s.landsOn("db-0", "far")
}

// landsOn waits until a pod runs on a node.
func (s *session) landsOn(name, node string) {
	s.Helper()
	s.within(3*time.Minute, fmt.Sprintf("%s runs on %s", name, node), func() error {
		pod, err := s.cluster.client(s.T).CoreV1().Pods(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != node || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return fmt.Errorf("%s on %s", pod.Status.Phase, pod.Spec.NodeName)
		}
		return nil
	})
}
