// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// olderManifests have neither selectors nor strategies, as before apps/v1beta2.
const olderManifests = `
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: any}]}
---
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata: {name: agent}
spec:
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: "any:v1"}]}
---
apiVersion: apps/v1beta1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: any}]}
`

// TestOlderVersions: requirement 3, from extensions/v1beta1 to apps/v1. The versions before apps/v1
// are off. When they are on, they keep their defaults, mutable selectors, Scales and orphans, of the
// same objects.
func TestOlderVersions(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node")
	s := newSession(t, c)
	if versions := s.kubectl("api-versions"); strings.Contains(versions, "v1beta2") || strings.Contains(versions, "extensions/") {
		t.Errorf("served by default:\n%s", versions)
	}
	s.refusedInput(olderManifests, []string{`no matches for kind "Deployment" in version "extensions/v1beta1"`}, "apply", "-f", "-")
	c.terminate(t)

	c.mustStart(t, "--no-node", "--simulated-nodes=2", "--runtime-config=extensions/v1beta1=true,apps/v1beta1=true,apps/v1beta2=true")
	s.apply(olderManifests)
	s.eventually("all are ready", func() error {
		got := s.kubectl("get", "deployments.v1.apps/web", "daemonsets.v1beta2.apps/agent", "statefulsets.v1beta1.apps/db", "--no-headers", "-o",
			"custom-columns=K:.kind,V:.apiVersion,R:.status.readyReplicas,N:.status.numberReady")
		want := "Deployment apps/v1 2 <none> DaemonSet apps/v1beta2 <none> 2 StatefulSet apps/v1beta1 1 <none>"
		if got = strings.Join(strings.Fields(got), " "); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})

	// Default selectors and strategies.
	if got := s.jsonpath("{.spec.selector.matchLabels.app} {.spec.strategy.rollingUpdate.maxSurge} {.spec.revisionHistoryLimit}", "deployments.v1.apps/web"); got != "web 1 2147483647" {
		t.Errorf("the Deployment in apps/v1: %s", got)
	}
	if got := s.jsonpath("{.spec.updateStrategy.type}", "statefulsets.v1.apps/db"); got != "OnDelete" {
		t.Errorf("the StatefulSet in apps/v1: %s", got)
	}
	s.kubectl("set", "image", "daemonsets.v1beta1.extensions/agent", "c=any:v2")
	if got := s.jsonpath("{.spec.updateStrategy.type} {.spec.templateGeneration}", "daemonsets.v1beta1.extensions/agent"); got != "OnDelete 2" {
		t.Errorf("the DaemonSet in extensions/v1beta1: %s", got)
	}

	// The Scale of each group.
	s.kubectl("scale", "deployments.v1beta1.extensions/web", "--replicas=3")
	for group, want := range map[string]string{
		"extensions/v1beta1": `"apiVersion":"extensions/v1beta1"`, "apps/v1beta1": `"apiVersion":"apps/v1beta1"`,
		"apps/v1beta2": `"apiVersion":"apps/v1beta2"`, "apps/v1": `"apiVersion":"autoscaling/v1"`,
	} {
		s.contains(s.kubectl("get", "--raw", "/apis/"+group+"/namespaces/"+s.namespace+"/deployments/web/scale"), want, `"spec":{"replicas":3}`)
	}

	// An object is the same in each group: for quotas, and as an owner.
	s.kubectl("create", "quota", "small", "--hard=count/deployments.apps=1")
	s.eventually("the quota is counted", func() error {
		if used := s.jsonpath(`{.status.used.count/deployments\.apps}`, "quota/small"); used != "1" {
			return fmt.Errorf("used: %q", used)
		}
		return nil
	})
	s.refusedInput(strings.Replace(strings.Split(olderManifests, "---")[0], "web", "other", 1), []string{"exceeded quota: small"}, "create", "-f", "-")
	s.kubectl("delete", "quota", "small")
	s.kubectl("create", "quota", "former", "--hard=count/deployments.extensions=1")
	s.eventually("the quota is counted", func() error {
		if used := s.jsonpath(`{.status.used.count/deployments\.extensions}`, "quota/former"); used != "1" {
			return fmt.Errorf("used: %q", used)
		}
		return nil
	})
	s.refused([]string{"exceeded quota: former"}, "create", "deployment", "other", "--image=any")
	s.kubectl("delete", "quota", "former")
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: owned
  ownerReferences: [{apiVersion: extensions/v1beta1, kind: DaemonSet, name: agent, uid: %s}]
`, s.uid("daemonset/agent")))

	// Selectors.
	const relabel = `{"spec":{"selector":{"matchLabels":{"track":"new"}},"template":{"metadata":{"labels":{"track":"new"}}}}}`
	s.refused([]string{"field is immutable"}, "patch", "deployments.v1beta2.apps/web", "--type=merge", "-p", relabel)
	s.refused([]string{"field is immutable"}, "patch", "deployments.v1.apps/web", "--type=merge", "-p", relabel)
	s.kubectl("patch", "deployments.v1beta1.extensions/web", "--type=merge", "-p", relabel)

	// Deletion without options orphans, except in apps/v1.
	path := "/namespaces/" + s.namespace
	s.kubectl("delete", "--raw", "/apis/apps/v1beta1"+path+"/statefulsets/db")
	s.kubectl("delete", "--raw", "/apis/apps/v1"+path+"/daemonsets/agent")
	s.gone("statefulset", "db")
	s.eventually("the daemon pods are collected", func() error {
		if left := s.pods("app=agent"); len(left) > 0 {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
	s.gone("configmap", "owned")
	if left := s.pods("app=db"); len(left) != 1 || len(left[0].OwnerReferences) != 0 {
		t.Errorf("pods of the StatefulSet: %d", len(left))
	}
}

// TestConvert: kindred convert rewrites old manifests without a cluster. A cluster that does not serve
// the old versions makes the same objects of them as one that does.
func TestConvert(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "old.yaml")
	if err := os.WriteFile(file, []byte(olderManifests), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := newCluster() // never started
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.remove() })
	r := c.run("convert", "-f", file, "--output-version=apps/v1")
	if r.code != 0 || strings.Count(r.out, "apiVersion: apps/v1\n") != 3 || !strings.Contains(r.out, "# StatefulSet/db: spec.updateStrategy.type: set to OnDelete, the default in apps/v1beta1; apps/v1 defaults to RollingUpdate\n") {
		t.Fatalf("exit status %d\n%s%s", r.code, r.out, r.err)
	}

	specs := func(manifest string, args ...string) string {
		c := ownCluster(t, append([]string{"--no-node"}, args...)...)
		s := newSession(t, c)
		s.apply(manifest)
		out := s.jsonpath(`{range .items[*]}{.kind} {.metadata.labels} {.spec}{"\n"}{end}`, "deployments.v1.apps,daemonsets.v1.apps,statefulsets.v1.apps")
		c.terminate(t)
		return out
	}
	old := specs(olderManifests, "--runtime-config=extensions/v1beta1=true,apps/v1beta1=true")
	if now := specs(r.out); now != old || strings.Count(old, "\n") != 3 {
		t.Errorf("converted:\n%s\nserved in the old versions:\n%s", now, old)
	}
}
