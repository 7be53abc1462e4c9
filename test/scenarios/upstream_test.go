// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/test/servers"
)

// needUpstream skips the test unless it was requested, because building upstream's programs takes minutes.
func needUpstream(t *testing.T) {
	t.Helper()
	if os.Getenv("KINDRED_UPSTREAM") == "" {
		t.Skip("upstream's programs are built and run where KINDRED_UPSTREAM is set, as by \"make upstream\"")
	}
}

// upstreamControlPlane returns a cluster of upstream's control plane without nodes.
func upstreamControlPlane(t *testing.T) *cluster {
	t.Helper()
	needUpstream(t)
	programs, err := servers.BuildControlPlane(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{dir: t.TempDir(), home: t.TempDir()}
	server, err := programs.Start(t.Context(), c.dir, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return c
}

// TestMoveToUpstreamAndBack: upstream's controllers continue with objects that Kindred's have
// created, and the reverse. Each garbage collector deletes what its side has given up, and nothing
// else.
func TestMoveToUpstreamAndBack(t *testing.T) {
	m := newMigrationTo(t, upstreamControlPlane(t))
	m.kubectl("create", "deployment", "web", "--image=any:v1", "--replicas=3")
	m.rolledOut("web")
	m.kubectl("set", "image", "deployment/web", "any=any:v2")
	m.rolledOut("web")
	m.kubectl("create", "service", "nodeport", "web", "--tcp=80")
	m.kubectl("create", "serviceaccount", "robot")
	m.apply(`
apiVersion: v1
kind: Secret
metadata: {name: token, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
---
apiVersion: batch/v1
kind: Job
metadata: {name: done}
spec:
  completions: 2
  template:
    metadata: {annotations: {kindred.dev/simulated-exit-after: 10ms, kindred.dev/simulated-exit-code: "0"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: any}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: any}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: any}]}
`)
	m.jobEnds("done", "complete")
	m.stack()
	roots := []string{"deployment/web", "service/web", "serviceaccount/robot", "secret/token", "job/done", "daemonset/agent", "statefulset/db", "stack/top"}
	on := m
	for _, direction := range []string{"to upstream", "back"} {
		t.Log(direction)
		token := on.jsonpath("{.data.token}", "secret/token")
		on.moves(append(slices.Clone(roots), "--to", on.there.cluster.kubeconfig(), "--yes", "--drop-finalizers")...)
		on.checkStack()
		on.podsGo()
		on.prints("serviceaccount/default\n", "get", "services,serviceaccounts,secrets,jobs,daemonsets,statefulsets,controllerrevisions,pvc,stacks", "-o", "name")
		on.there.grown(token)
		on = on.back()
	}
	m.rolledOut("web")
	m.kubectl("rollout", "undo", "deployment/web")
	m.rolledOut("web")
	m.prints("any:v1", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// grown checks what controllers have created for the moved objects: the pods of the Deployment's
// second revision, nothing for a finished Job or a known revision, the claim of a StatefulSet
// (which only upstream creates, and Kindred then has), and a new token.
func (s *session) grown(tokenBefore string) {
	s.Helper()
	sets := s.kubectl("get", "replicasets", "--sort-by={.spec.replicas}", "-o",
		`jsonpath={range .items[*]}{.metadata.annotations.deployment\.kubernetes\.io/revision} {.metadata.ownerReferences[*].uid} {.metadata.uid}{"\n"}{end}`)
	set := regexp.MustCompile(fmt.Sprintf(`^1 %[1]s \S+\n2 %[1]s (\S+)\n$`, s.uid("deployment/web"))).FindStringSubmatch(sets)
	if set == nil {
		s.Fatalf("the ReplicaSets are\n%s", sets)
	}
	s.eventually("the second revision has its pods", func() error {
		if owners := s.jsonpath("{.items[*].metadata.ownerReferences[*].uid}", "pods", "-l", "app=web"); owners != strings.Join([]string{set[1], set[1], set[1]}, " ") {
			return fmt.Errorf("owners of the pods are %q, want 3 times %s", owners, set[1])
		}
		return nil
	})
	s.prints("2 Complete "+s.uid("job/done"), "get", "job", "done", "-o",
		`jsonpath={.status.succeeded} {.status.conditions[?(@.type=="Complete")].type} {.spec.selector.matchLabels.batch\.kubernetes\.io/controller-uid}`)
	s.prints("", "get", "pods", "-l", "job-name=done", "-o", "name")
	s.prints(s.uid("daemonset/agent"), "get", "controllerrevisions", "-l", "app=agent", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].uid}")
	s.eventually("the StatefulSet has a claim and a revision", func() error {
		owners := s.jsonpath("{.items[*].metadata.ownerReferences[*].uid}", "pvc,controllerrevisions", "-l", "app=db")
		if db := s.uid("statefulset/db"); owners != db+" "+db {
			return fmt.Errorf("owners %q, want twice %s", owners, db)
		}
		return nil
	})
	s.eventually("another token is there", func() error {
		if token := s.jsonpath("{.data.token}", "secret/token"); token == "" || token == tokenBefore {
			return fmt.Errorf("the token is %q", token)
		}
		return nil
	})
	s.prints(s.uid("serviceaccount/robot"), "get", "secret", "token", "-o", `jsonpath={.metadata.annotations.kubernetes\.io/service-account\.uid}`)
}

// TestMoveKilledBesideUpstream: upstream's controllers act on an incomplete graph as Kindred's do.
func TestMoveKilledBesideUpstream(t *testing.T) {
	m := newMigrationTo(t, upstreamControlPlane(t))
	m.kubectl("create", "deployment", "web", "--image=any:v1", "--replicas=2")
	m.rolledOut("web")
	m.stack()
	for _, on := range []*migration{m, m.back()} {
		on.movesThoughKilled()
		on.there.eventually("the Deployment has its pods", func() error {
			if pods := on.there.pods("app=web"); len(pods) != 2 {
				return fmt.Errorf("%d pods", len(pods))
			}
			return nil
		})
	}
	m.rolledOut("web")
}
