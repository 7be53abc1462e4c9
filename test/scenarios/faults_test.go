// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fault is a row of the table of failures in docs/failures.md.
type fault struct {
	name string
	// inject begins the failure, and returns what ends it.
	inject func(b *faultBed) (heal func())
	hold   time.Duration
	// podsMove is set if pods are replaced, because their node is lost.
	podsMove bool
}

// cutOff is how long machines and processes are away, longer than any lease of a server.
const cutOff = 10 * time.Second

// faults are those that three servers with embedded etcds survive.
func faults() []fault {
	all := []fault{
		{name: "SIGKILL of the leader", inject: func(b *faultBed) func() { return b.killed(b.leads()) }, hold: cutOff},
		{name: "SIGSTOP of the leader", inject: func(b *faultBed) func() { return b.halted(b.leads()) }, hold: cutOff},
		{name: "the leader without other machines", inject: func(b *faultBed) func() { return b.lan.isolate(1 + b.leads()) }, hold: cutOff},
		{name: "a slow link", inject: (*faultBed).slowed, hold: cutOff},
		{name: "a full disk", inject: (*faultBed).filled, hold: 2 * cutOff},
		{name: "a node cut off", inject: func(b *faultBed) func() { return b.lan.isolate(farNode) }, hold: cutOff},
	}
	all = append(all, fault{name: "SIGKILL of two servers", inject: func(b *faultBed) func() { return b.killed(0, 1) }, hold: cutOff})
	for i := range 3 {
		server := i + 1
		all = append(all, fault{name: fmt.Sprintf("SIGKILL of server %d", server), inject: func(b *faultBed) func() { return b.killed(i) }, hold: cutOff})
	}
	machines := []int{1, 2, 3, nearNode, farNode}
	for i, one := range machines {
		for _, other := range machines[i+1:] {
			all = append(all, fault{name: fmt.Sprintf("a cut between %d and %d", one, other), inject: func(b *faultBed) func() { return b.lan.cut(one, other) }, hold: cutOff})
		}
	}
	return append(all,
		fault{name: "upgrade", inject: (*faultBed).upgraded},
		fault{name: "a node lost for longer than tolerated", inject: (*faultBed).losesNode, podsMove: true})
}

// TestFaults makes machines, processes and networks of a cluster fail, one after the other, under load.
func TestFaults(t *testing.T) {
	needFaults(t)
	b := newFaultBed(t, newLAN(t), "--etcd-embedded")
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) { b.survives(t, f) })
	}
}

func needFaults(t *testing.T) {
	t.Helper()
	if os.Getenv("KINDRED_FAULTS") == "" {
		t.Skip("takes some minutes; runs where KINDRED_FAULTS is set, as by \"make faults\"")
	}
	needContainers(t)
}

const (
	// nearNode and farNode are the machines of the two nodes.
	nearNode = 8
	farNode  = 9
	// toleration is after how many seconds pods of a lost node are evicted.
	toleration = 5
)

// faultBed is three servers and two nodes with pods.
type faultBed struct {
	*session
	lan     *lan
	servers []*cluster // the first one on machine 1
	// delay is that of the third server's link, in each direction.
	delay *atomic.Int64
	// disk is that of the second server.
	disk string
	// locks has a file for each pod of a StatefulSet.
	locks string
}

// newFaultBed starts the first server with the given store.
func newFaultBed(t *testing.T, l *lan, store ...string) *faultBed {
	t.Helper()
	b := &faultBed{lan: l, disk: smallDisk(t, 600<<20), locks: t.TempDir()}
	b.servers = []*cluster{b.lan.server(1, append(store, "--no-node")...)}
	invited := append(serverInvitation(t, b.servers[0]), "--no-node")
	b.servers = append(b.servers, b.lan.machine(2).serve(stoppedCluster(t, b.disk), invited...))
	slow, delay := b.lan.slowMachine(3)
	b.delay = delay
	b.servers = append(b.servers, slow.serve(stoppedCluster(t, ""), append(serverInvitation(t, b.servers[0]), "--no-node")...))
	b.session = newSession(t, b.servers[0])
	program := programImage(t, "traffic")
	for number, name := range map[int]string{nearNode: "near", farNode: "far"} {
		m := b.lan.machine(number)
		m.resetAfterwards()
		m.join(append(b.invitation(), "--node-name", name)...)
		m.loadImages()
		m.loadImage(program)
	}
	b.runPods()
	return b
}

// runPods runs a Deployment, pods that talk with each other from node to node, and a StatefulSet whose pods hold locks.
func (b *faultBed) runPods() {
	b.Helper()
	b.deploys("web", 3)
	b.kubectl("patch", "deployment", "web", "--type=merge", "-p", fmt.Sprintf(
		`{"spec":{"template":{"spec":{"tolerations":[{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":%d}]}}}}`, toleration))
	b.areReady("web", 3)
	b.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: echo, labels: {app: echo}}
spec:
  nodeName: near
  tolerations: [{operator: Exists}]
  containers:
  - {name: main, image: "traffic:v1", command: [/traffic, echo, ":9000"], readinessProbe: {tcpSocket: {port: 9000}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 9000}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: single}
spec:
  replicas: 3
  serviceName: single
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: single}}
  template:
    metadata: {labels: {app: single}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: %[2]d}]
      containers:
      - name: main
        image: "traffic:v1"
        command: [/traffic, hold, /locks/$(NAME)]
        env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        volumeMounts: [{name: locks, mountPath: /locks}]
      volumes: [{name: locks, hostPath: {path: %[1]q}}]
`, b.locks, toleration))
	b.ready("echo")
	b.apply(`
apiVersion: v1
kind: Pod
metadata: {name: talk}
spec:
  nodeName: far
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: "traffic:v1", command: [/traffic, talk, "$(ECHO_SERVICE_HOST):9000"]}]
`)
	b.ready("talk")
	b.runsSet(b.session)
}

// runsSet: the StatefulSet has all its pods.
func (b *faultBed) runsSet(s *session) {
	s.Helper()
	s.eventually("the StatefulSet has its pods", func() error {
		set, err := s.cluster.client(s.T).AppsV1().StatefulSets(b.namespace).Get(s.Context(), "single", metav1.GetOptions{})
		if err == nil && set.Status.ReadyReplicas != 3 {
			err = fmt.Errorf("%d are ready", set.Status.ReadyReplicas)
		}
		return err
	})
}

// survives: under a fault, no acknowledged write is lost, what clients read fits, nothing with an owner is collected, no identity
// runs twice, pods run on with their connections, and afterwards all is as before.
func (b *faultBed) survives(t *testing.T, f fault) {
	s := newSession(t, b.servers[0])
	load, writer := newLoad(s, b.servers), newSteadyWriter(s, b.servers)
	cuts, pods := b.cuts(), b.runs()
	began := time.Now()
	heal := f.inject(b)
	time.Sleep(f.hold)
	heal()
	healed := time.Now()
	b.isHealthy(s)
	if now := b.runs(); !f.podsMove && !maps.Equal(pods, now) {
		t.Errorf("pods and restarts were %v, and are %v", pods, now)
	}
	b.works(s)
	t.Logf("injected for %v, recovered after %v", healed.Sub(began).Round(time.Second), time.Since(healed).Round(time.Second))
	load.check()
	writer.check()
	if now := b.cuts(); now != cuts {
		t.Errorf("the connection between pods was cut:\n%s", now)
	}
	if twice, err := filepath.Glob(filepath.Join(b.locks, "*.twice")); err != nil || len(twice) > 0 {
		t.Errorf("pods ran twice: %v, %v", twice, err)
	}
}

// cuts returns what the pod that talks says of its connection.
func (b *faultBed) cuts() string { return b.kubectl("logs", "talk") }

// runs returns the restarts of each pod, by UID.
func (b *faultBed) runs() map[string]int32 {
	runs := map[string]int32{}
	for _, pod := range b.pods("") {
		for _, c := range pod.Status.ContainerStatuses {
			runs[pod.Name+" "+string(pod.UID)] += c.RestartCount
		}
	}
	return runs
}

// isHealthy: all servers answer, all nodes are Ready.
func (b *faultBed) isHealthy(s *session) {
	s.Helper()
	for i, c := range b.servers {
		s.eventually(fmt.Sprintf("server %d is ready", i+1), func() error {
			_, err := c.client(s.T).Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(s.Context())
			return err
		})
	}
	s.eventually("status finds nothing wrong", func() error {
		if r := s.cluster.run("status"); r.code != 0 {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
	s.eventually("the nodes are ready", func() error {
		nodes, err := s.cluster.client(s.T).CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					return fmt.Errorf("%s is Ready=%s: %s", n.Name, c.Status, c.Message)
				}
			}
		}
		return nil
	})
}

// works: controllers, the scheduler and the nodes do what they are asked for.
func (b *faultBed) works(s *session) {
	s.Helper()
	on := *b.session
	on.T = s.T
	on.scales("web", 4)
	on.scales("web", 3)
	b.runsSet(s)
}

// leads returns the index of the server that leads.
func (b *faultBed) leads() int {
	b.Helper()
	var led leadership
	b.eventually("a server leads", func() error {
		if led = b.leader(); led.name == "" {
			return fmt.Errorf("none")
		}
		return nil
	})
	return slices.Index(b.servers, led.of(b.T, b.servers))
}

func (b *faultBed) killed(servers ...int) (heal func()) {
	for _, i := range servers {
		b.servers[i].kill(b.T)
	}
	return func() {
		for _, i := range servers {
			b.servers[i].again(b.T)
		}
	}
}

func (b *faultBed) halted(server int) (heal func()) {
	process := b.servers[server].up.cmd.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := process.Signal(syscall.SIGCONT); err != nil {
			b.Fatal(err)
		}
	}
}

// slowed makes the round trip to the third server take 200 ms.
func (b *faultBed) slowed() (heal func()) {
	b.delay.Store(int64(100 * time.Millisecond))
	return func() { b.delay.Store(0) }
}

// filled leaves the second server no room to write. Whether it ends or not, it goes on when it has some.
func (b *faultBed) filled() (heal func()) {
	free := fill(b.T, b.disk)
	return func() {
		free()
		second := b.servers[1]
		if second.running() {
			return
		}
		if out := second.up.out.String(); !strings.Contains(out, "no space left on device") {
			b.Errorf("a server without room ended without saying so: %s", out)
		}
		second.again(b.T)
	}
}

// upgraded replaces one server after another by another build, and back again.
func (b *faultBed) upgraded() (heal func()) {
	next := nextBuild(b.T)
	replace := func(build string) {
		for i, c := range b.servers {
			if err := c.signal(syscall.SIGTERM); err != nil {
				b.Error(err)
			}
			c.build = build
			c.again(b.T)
			b.within(10*time.Second, fmt.Sprintf("server %d is in the Service kubernetes", i+1), func() error {
				r := b.on(b.servers, c).try("get", "endpointslices", "kubernetes", "--namespace", "default", "-o", "jsonpath={.endpoints[*].addresses}")
				if strings.Count(r.out, "10.247.8.") != len(b.servers) {
					return fmt.Errorf("%s%s", r.out, r.err)
				}
				return nil
			})
		}
	}
	replace(next)
	if r := b.cluster.run("status"); strings.Count(r.out, nextVersion) < len(b.servers) {
		b.Errorf("status does not show the version %s of each server:\n%s%s", nextVersion, r.out, r.err)
	}
	return func() { replace("") }
}

const nextVersion = "v99.0.0-next"

// nextBuild builds kindred with another version.
func nextBuild(t *testing.T) string {
	t.Helper()
	return buildWith(t, "VERSION="+nextVersion)
}

// buildWith builds kindred with variables of make.
func buildWith(t *testing.T, variables ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kindred")
	build := exec.Command("make", append([]string{"-C", "../..", "build", "BIN=" + file}, variables...)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// losesNode cuts off a node until its pods have been replaced. The pods of the StatefulSet are not, because they may run on.
func (b *faultBed) losesNode() (heal func()) {
	heal = b.lan.isolate(farNode)
	b.within(3*time.Minute, "the Deployment has all pods on the other node", func() error {
		running := 0
		for _, pod := range b.pods("app=web") {
			if pod.Spec.NodeName == "near" && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
				running++
			}
		}
		if running < 3 {
			return fmt.Errorf("%d", running)
		}
		return nil
	})
	return heal
}
