// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"testing"
)

// TestResourceQuota: a quota refuses objects beyond its limit, and deleted objects free their part.
func TestResourceQuota(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: q}
spec:
  hard: {pods: "2", requests.cpu: 500m, secrets: "1", count/deployments.apps: "1", count/quotawidgets.example.com: "1", quota-gpu.deviceclass.resource.k8s.io/devices: "2"}
`)
	s.uses("pods", "0")
	s.uses("count/deployments.apps", "0")

	s.kubectl("create", "secret", "generic", "one")
	s.uses("secrets", "1")
	s.refused([]string{`secrets "two" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1`}, "create", "secret", "generic", "two")
	s.kubectl("delete", "secret", "one")
	s.uses("secrets", "0")
	s.kubectl("create", "secret", "generic", "two")

	// Requests of pods count until the pods are deleted, whichever client creates them.
	s.refused([]string{"failed quota: q: must specify requests.cpu for: idle"}, "run", "idle", "--image=registry.example/any:v1")
	s.kubectl("create", "deployment", "web", "--image=registry.example/any:v1", "--replicas=0")
	s.kubectl("set", "resources", "deployment/web", "--requests=cpu=200m")
	s.kubectl("scale", "deployment/web", "--replicas=3")
	s.uses("pods", "2")
	s.uses("requests.cpu", "400m")
	s.uses("count/deployments.apps", "1")
	s.refused([]string{"exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1"},
		"create", "deployment", "more", "--image=registry.example/any:v1")
	s.kubectl("delete", "deployment", "web")
	s.uses("pods", "0")
	s.uses("requests.cpu", "0")
	s.uses("count/deployments.apps", "0")

	// Devices are counted by class.
	s.apply(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: quota-gpu}
`)
	t.Cleanup(func() { s.try("delete", "deviceclass", "quota-gpu") })
	claim := func(name, count string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: " + name + "}\n" +
			"spec: {devices: {requests: [{name: a, exactly: {deviceClassName: quota-gpu, count: " + count + "}}]}}\n"
	}
	s.input(claim("one", "2"), "create", "-f", "-")
	s.uses("quota-gpu.deviceclass.resource.k8s.io/devices", "2")
	s.refusedInput(claim("two", "1"), []string{"exceeded quota: q, requested: quota-gpu.deviceclass.resource.k8s.io/devices=1"}, "create", "-f", "-")
	s.kubectl("delete", "resourceclaim", "one")
	s.uses("quota-gpu.deviceclass.resource.k8s.io/devices", "0")

	// Custom resources are counted once their kind exists.
	s.apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: quotawidgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: quotawidgets, singular: quotawidget, kind: QuotaWidget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	t.Cleanup(func() { s.try("delete", "crd", "quotawidgets.example.com") })
	s.uses("count/quotawidgets.example.com", "0")
	widget := func(name string) string {
		return "apiVersion: example.com/v1\nkind: QuotaWidget\nmetadata: {name: " + name + "}\n"
	}
	s.input(widget("one"), "create", "-f", "-")
	s.refusedInput(widget("two"), []string{"exceeded quota: q, requested: count/quotawidgets.example.com=1, used: count/quotawidgets.example.com=1"}, "create", "-f", "-")
	s.kubectl("delete", "quotawidget", "one")
	s.uses("count/quotawidgets.example.com", "0")
	s.input(widget("two"), "create", "-f", "-")
}

// uses waits until the quota q reports a usage.
func (s *session) uses(name, want string) {
	s.Helper()
	s.eventually(name+" is "+want, func() error {
		got := s.kubectl("get", "resourcequota", "q", "-o", `go-template={{with .status.used}}{{index . "`+name+`"}}{{end}}`)
		if got != want {
			return fmt.Errorf("%s: %s used, want %s", name, got, want)
		}
		return nil
	})
}
