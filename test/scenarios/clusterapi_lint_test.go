// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// health holds a management cluster against Cluster API's table of owners: each version of each object by a record, and all objects, once a second, by
// "kindred lint", which has further rules.
type health struct {
	*management
	record *record

	mu sync.Mutex
	// found has the findings since the last call of take, each with its message. last are those of the newest check.
	found, last map[string]string
	checks      int
}

// watchOwners starts the checks. They end with the test.
func (m *management) watchOwners() *health {
	m.Helper()
	h := &health{management: m, record: m.recordOwners(), found: map[string]string{}}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				h.check()
			}
		}
	}()
	m.Cleanup(func() { close(stop); <-stopped })
	return h
}

// check adds the findings of one check.
func (h *health) check() {
	r := h.cluster.run("lint", "-A", "--profile", "cluster-api", "-o", "json")
	var answer struct {
		Status struct {
			Findings []struct {
				Object        struct{ Kind, Name string }
				Rule, Message string
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = map[string]string{}
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil {
		h.last["the check failed"] = r.err
	}
	for _, f := range answer.Status.Findings {
		h.last[fmt.Sprintf("%s: %s %s", f.Rule, f.Object.Kind, f.Object.Name)] = f.Message
	}
	maps.Copy(h.found, h.last)
	h.checks++
}

// take returns the findings since the last call.
func (h *health) take() map[string]string {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checks == 0 {
		h.Error("the owners were not checked")
	}
	found := h.found
	h.found, h.checks = map[string]string{}, 0
	return found
}

// good fails the test if a check has found anything since the last call.
func (h *health) good(when string) {
	h.Helper()
	if found := h.take(); len(found) > 0 {
		h.Errorf("%s, kindred lint found in a healthy cluster: %s", when, lines(found))
	}
	h.record.good(when)
}

// pardon forgets what was found since the last call of take, once all objects have their owners again.
func (h *health) pardon(when string) {
	h.Helper()
	h.record.saw(when)
	h.take()
}

// saw fails the test if the checks have not found faults of exactly these rules since the last call, or if the newest found any.
func (h *health) saw(when string, rules ...string) {
	h.Helper()
	found, seen := h.settled(when), map[string]bool{}
	for finding := range found {
		rule, _, _ := strings.Cut(finding, ": ")
		seen[rule] = true
	}
	if diff := cmp.Diff(rules, slices.Sorted(maps.Keys(seen))); diff != "" {
		h.Errorf("%s, the rules of the findings (-want +got):\n%s%s", when, diff, lines(found))
	}
	h.record.saw(when, "undocumented-owners", "lost-owners", "unserved-version")
}

// settled waits until nothing is wrong any more, and returns what was found until then.
func (h *health) settled(when string) map[string]string {
	h.Helper()
	h.within(provisioning, when+", nothing is wrong any more", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.last) > 0 {
			return fmt.Errorf("%s", lines(h.last))
		}
		return nil
	})
	return h.take()
}

func lines(found map[string]string) string {
	var all []string
	for finding, message := range found {
		all = append(all, "\n"+finding+": "+message)
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// wrongOwner is a change that Cluster API does not undo, with the finding that names it.
type wrongOwner struct{ object, owner, want string }

var wrongOwners = []wrongOwner{
	{"machinedeployment/plain", "configmap/brought", "undocumented-owners: MachineDeployment plain"},
	{"clusterresourceset/one", "cluster/plain", "undocumented-owners: ClusterResourceSet one"},
	{"devcluster/plain", "clusterresourceset/one", "undocumented-owners: DevCluster plain"},
}

// astray is a MachineHealthCheck of a Cluster that does not exist.
const astray = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: astray}
spec:
  clusterName: absent
  selector: {matchLabels: {deployment: absent}}
  checks: {unhealthyNodeConditions: [{type: Ready, status: "False", timeoutSeconds: 300}]}
`

// spares are templates that nothing names.
const spares = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevClusterTemplate
metadata: {name: spare}
spec: {template: {spec: {backend: {inMemory: {}}}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: spare}
spec: {template: {spec: {backend: {inMemory: {}}}}}
`

// TestClusterAPILint: each deliberate fault is found and named, by the record as well, and --fix leaves to the controllers what they mend.
func TestClusterAPILint(t *testing.T) {
	m := newManagement(t)
	owners := m.recordOwners()
	m.apply(resourceSets)
	m.apply(plainCluster)
	m.apply(astray)
	m.available("plain", 3)
	m.finds("undocumented-owners: MachineHealthCheck astray") // a minute after it was created
	m.kubectl("delete", "machinehealthcheck", "astray")
	m.finds()
	owners.good("while it is created")
	for _, fault := range wrongOwners {
		m.misowned(fault)
		owners.saw("with a wrong owner", fault.want)
	}
	m.finds()
	m.leavesToControllers()
	owners.saw("with a lost owner", "undocumented-owners: MachineDeployment plain")

	m.apply(spares)
	m.names("spare", true)
	m.finds("undocumented-owners: DevMachineTemplate spare") // a minute after it was created
	m.names("plain", false)
	m.finds()
	m.misowned(wrongOwner{"devclustertemplate/spare", "cluster/plain", "undocumented-owners: DevClusterTemplate spare"})
	m.finds()
	m.repairs()
	m.kubectl("delete", "devclustertemplate/spare", "devmachinetemplate/spare")
	owners.saw("with templates of wrong owners", "undocumented-owners: DevClusterTemplate spare", "lost-owners: DevMachineTemplate spare")
}

// misowned makes the change, waits for the finding, and undoes the change.
func (m *management) misowned(fault wrongOwner) {
	m.Helper()
	before := m.jsonpath("{.metadata.ownerReferences}", fault.object)
	if before == "" {
		before = "[]"
	}
	m.own(fault.object, strings.TrimSuffix(before, "]"), fault.owner)
	m.finds(fault.want)
	m.kubectl("patch", fault.object, "--type=merge", "-p", `{"metadata":{"ownerReferences":`+before+`}}`)
}

// names makes the MachineDeployment name a template, and pauses the Cluster meanwhile, or resumes it.
func (m *management) names(template string, paused bool) {
	m.Helper()
	pause := []string{"patch", "cluster", "plain", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"paused":%v}}`, paused)}
	if paused {
		m.kubectl(pause...)
		m.kubectl("wait", "machinedeployment", "plain", "--for=condition=Paused", "--timeout="+patience.String())
	}
	m.kubectl("patch", "machinedeployment", "plain", "--type=merge", "-p", `{"spec":{"template":{"spec":{"infrastructureRef":{"name":"`+template+`"}}}}}`)
	if !paused {
		m.kubectl(pause...)
	}
}

// repairs: --fix restores the owner of a template that nothing names, because no controller does.
func (m *management) repairs() {
	m.Helper()
	m.own("devmachinetemplate/spare", "[", "cluster/plain")
	m.kubectl("patch", "devmachinetemplate", "spare", "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`)
	m.finds("lost-reference: DevMachineTemplate spare")
	if r := m.cluster.run("lint", "-n", m.namespace, "--profile", "cluster-api", "--fix"); r.code != 0 || !strings.Contains(r.out, "restore the reference to Cluster plain") {
		m.Errorf("--fix: %d, %s%s", r.code, r.out, r.err)
	}
	m.finds()
	if owner := m.jsonpath("{.metadata.ownerReferences[*].name}", "devmachinetemplate", "spare"); owner != "plain" {
		m.Errorf("the owner is %q", owner)
	}
}

// own adds an owner to the references of an object, which are an array without its end.
func (m *management) own(object, references, owner string) {
	m.Helper()
	reference := m.jsonpath(`{"{"}"apiVersion":"{.apiVersion}","kind":"{.kind}","name":"{.metadata.name}","uid":"{.metadata.uid}"{"}"}`, owner)
	if references != "[" {
		references += ","
	}
	m.kubectl("patch", object, "--type=merge", "-p", `{"metadata":{"ownerReferences":`+references+reference+`]}}`)
}

// finds waits until the check has exactly these findings.
func (m *management) finds(want ...string) {
	m.Helper()
	h := &health{management: m, found: map[string]string{}}
	m.within(2*time.Minute, "the findings", func() error {
		h.check()
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(h.last))); diff != "" {
			return fmt.Errorf("(-want +got):\n%s%s", diff, lines(h.last))
		}
		return nil
	})
}

// leavesToControllers: a reference that was removed is found, left alone by --fix while the Cluster is paused, and restored by Cluster
// API afterwards.
func (m *management) leavesToControllers() {
	m.Helper()
	m.kubectl("patch", "cluster", "plain", "--type=merge", "-p", `{"spec":{"paused":true}}`)
	m.kubectl("wait", "machinedeployment", "plain", "--for=condition=Paused", "--timeout="+patience.String())
	m.kubectl("patch", "machinedeployment", "plain", "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`)
	m.finds("lost-reference: MachineDeployment plain")
	r := m.cluster.run("lint", "-n", m.namespace, "--profile", "cluster-api", "--fix")
	if !strings.Contains(r.out, "skipped: left to the controllers of Cluster API") || r.code != 1 {
		m.Errorf("--fix: %d, %s%s", r.code, r.out, r.err)
	}
	m.finds("lost-reference: MachineDeployment plain")
	m.kubectl("patch", "cluster", "plain", "--type=merge", "-p", `{"spec":{"paused":false}}`)
	m.finds()
	if owner := m.jsonpath("{.metadata.ownerReferences[*].name}", "machinedeployment", "plain"); owner != "plain" {
		m.Errorf("the owner is %q", owner)
	}
}
