// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDisruptionBudgets evicts pods that budgets protect.
func TestDisruptionBudgets(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: any}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  maxUnavailable: 0%
  selector: {matchLabels: {app: web}}
`)
	s.budget("web", "3 of 3 healthy, 3 expected, 0 allowed, InsufficientPods")
	s.table("NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE\nweb N/A 0% 0 *", "get", "pdb", "web")
	victim := s.pods("app=web")[0].Name
	if err := s.evict(victim); err == nil || !strings.Contains(err.Error(), "Cannot evict pod as it would violate the pod's disruption budget") {
		t.Errorf("evicted: %v", err)
	}
	s.kubectl("patch", "pdb", "web", "-p", `{"spec":{"maxUnavailable":"30%"}}`)
	s.budget("web", "3 of 2 healthy, 3 expected, 1 allowed, SufficientPods")
	if err := s.evict(victim); err != nil {
		t.Error(err)
	}
	s.eventually("the evicted pod is replaced", func() error {
		for _, pod := range s.pods("app=web") {
			if pod.Name == victim {
				return fmt.Errorf("%s remains", victim)
			}
		}
		return nil
	})
	s.budget("web", "3 of 2 healthy, 3 expected, 1 allowed, SufficientPods")
	s.kubectl("scale", "deployment", "web", "--replicas", "6")
	s.budget("web", "6 of 4 healthy, 6 expected, 2 allowed, SufficientPods")

	// A pod that is never ready may be evicted only if the budget says so.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: sick, labels: {app: sick}}
spec:
  terminationGracePeriodSeconds: 0
  readinessGates: [{conditionType: example.com/well}]
  containers: [{name: c, image: any}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: sick}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: sick}}
`)
	s.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/sick", "--timeout", patience.String())
	s.budget("sick", "0 of 1 healthy, 1 expected, 0 allowed, InsufficientPods")
	if err := s.evict("sick"); err == nil {
		t.Error("a pod was evicted although the budget has no healthy pod")
	}
	s.kubectl("patch", "pdb", "sick", "-p", `{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`)
	s.eventually("the pod that is not ready is evicted", func() error { return s.evict("sick") })
}

// TestDisruptionBudgetOfACustomResource takes the number of pods from the scale subresource of their
// owner. Pods of an owner that has none are protected.
func TestDisruptionBudgetOfACustomResource(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: flocks.scaling.example}
spec:
  group: scaling.example
  scope: Namespaced
  names: {plural: flocks, singular: flock, kind: Flock}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}
`)
	t.Cleanup(func() { s.try("delete", "crd", "flocks.scaling.example") })
	s.kubectl("wait", "--for=condition=Established", "crd/flocks.scaling.example", "--timeout", patience.String())
	s.eventually("the custom resource is served", func() error {
		if r := s.try("get", "flocks"); r.code != 0 {
			return fmt.Errorf("%s", r.err)
		}
		return nil
	})
	s.apply("{apiVersion: scaling.example/v1, kind: Flock, metadata: {name: geese}, spec: {size: 4}}")
	manifest := `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: geese}
spec: {minAvailable: 50%, selector: {matchLabels: {app: geese}}}
`
	for i := range 3 {
		manifest += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata:
  name: goose-%d
  labels: {app: geese}
  ownerReferences: [{apiVersion: scaling.example/v1, kind: Flock, name: geese, controller: true, uid: %s}]
spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: any}]}
`, i, s.uid("flock/geese"))
	}
	s.apply(manifest)
	s.budget("geese", "3 of 2 healthy, 4 expected, 1 allowed, SufficientPods")

	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  template:
    metadata: {labels: {app: work}}
    spec: {restartPolicy: Never, terminationGracePeriodSeconds: 0, containers: [{name: c, image: any}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: work}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: work}}}
`)
	s.budget("work", "0 of 0 healthy, 0 expected, 0 allowed, SyncFailed")
	s.describes("pdb", "work", "CalculateExpectedPodCountFailed", "jobs.batch does not implement the scale subresource", "controllermanager")
}

// evict evicts a pod by the API.
func (s *session) evict(pod string) error {
	s.Helper()
	return s.cluster.client(s.T).PolicyV1().Evictions(s.namespace).Evict(s.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod}})
}

// budget waits until a budget has a status.
func (s *session) budget(name, want string) {
	s.Helper()
	s.eventually("the status of the budget "+name, func() error {
		budget, err := s.cluster.client(s.T).PolicyV1().PodDisruptionBudgets(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := budget.Status
		got := fmt.Sprintf("%d of %d healthy, %d expected, %d allowed", status.CurrentHealthy, status.DesiredHealthy, status.ExpectedPods, status.DisruptionsAllowed)
		for _, c := range status.Conditions {
			got += ", " + c.Reason
		}
		if got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
}
