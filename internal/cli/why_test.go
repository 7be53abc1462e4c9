// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func refTo(kind, name string) ownership.ObjectReference {
	return ownership.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: "shop", Name: name, UID: types.UID(name)}
}

// ago returns a deletion at a time before noon.
func ago(d time.Duration, object ownership.ObjectReference, kind ownership.AgentKind, user, agent string, because ...ownership.ObjectReference) ownership.ExplainedDeletion {
	at := metav1.NewMicroTime(noon.Add(-d))
	return ownership.ExplainedDeletion{
		Object: object, Time: &at, By: ownership.DeletionAgent{Kind: kind, User: user, UserAgent: agent},
		PropagationPolicy: metav1.DeletePropagationBackground, Because: because,
	}
}

func hiding(n int32, d ownership.ExplainedDeletion) ownership.ExplainedDeletion {
	d.Hidden = n
	return d
}

func astray(d ownership.ExplainedDeletion, owner ownership.ObjectReference) ownership.ExplainedDeletion {
	d.InvalidOwners = append(d.InvalidOwners, owner)
	return d
}

func TestWhySentences(t *testing.T) {
	web, set, one := refTo("Deployment", "web"), refTo("ReplicaSet", "web-abc"), refTo("Pod", "web-1")
	owner := func(name string, standing ownership.Standing, controls bool) ownership.OwnerReference {
		return ownership.OwnerReference{OwnerReference: metav1.OwnerReference{Kind: "Set", Name: name, Controller: &controls}, Standing: standing}
	}
	for name, tt := range map[string]struct {
		status ownership.OwnershipExplanationStatus
		want   string
	}{
		"a cascade": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateGone, Deletions: []ownership.ExplainedDeletion{
			ago(3*time.Minute, one, ownership.AgentGarbageCollector, "gc", "", set),
			ago(4*time.Minute, set, ownership.AgentGarbageCollector, "gc", "", web),
			ago(5*time.Minute, web, ownership.AgentUser, "kubernetes-admin", "kubectl/v1.37.1"),
		}}, `
Pod shop/web-1 was deleted 3m ago by the garbage collector, because its owner ReplicaSet web-abc was gone.
ReplicaSet shop/web-abc was deleted 4m ago by the garbage collector, because its owner Deployment web was gone.
Deployment shop/web was deleted 5m ago by kubernetes-admin (kubectl) with policy Background.`},
		"nobody's": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateLiving},
			"Pod shop/web-1 exists and has no owner: it stays until it is deleted."},
		"kept": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateLiving, Owners: []ownership.OwnerReference{
			owner("a", ownership.StandingSolid, true), owner("b", ownership.StandingDangling, false), owner("c", ownership.StandingHidden, true),
		}}, "Pod shop/web-1 exists: its controller Set a exists; its owner Set b does not exist; you may not read its controller Set c; it is garbage collected when none of its owners exists."},
		"waiting": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateTerminating,
			WaitsFor: []ownership.DeletionWait{
				{DeletionBlock: ownership.DeletionBlock{Finalizer: "example.com/hold"}},
				{DeletionBlock: ownership.DeletionBlock{Finalizer: "known"}, Message: "its controller takes it away"},
				{DeletionBlock: ownership.DeletionBlock{Dependent: &set}},
			},
			Deletions: []ownership.ExplainedDeletion{ago(time.Minute, one, ownership.AgentServiceAccount, "system:serviceaccount:shop:deployer", "helm/3")},
			Messages:  []string{"node n1 has to stop its containers first"}, Hidden: 1,
		}, `
Pod shop/web-1 is being deleted, and waits for finalizer example.com/hold: the controller that added it must remove it.
Pod shop/web-1 is being deleted, and waits for finalizer known: its controller takes it away.
Pod shop/web-1 is being deleted, and waits for its dependent ReplicaSet/web-abc.
Pod shop/web-1: deletion requested 60s ago by service account shop/deployer (helm) with policy Background.
Node n1 has to stop its containers first.
Also involved: 1 more object that you may not read.`},
		"others": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateGone,
			Deletions: []ownership.ExplainedDeletion{
				ago(time.Hour, one, ownership.AgentController, "system:serviceaccount:kube-system:namespace-controller", "", ownership.ObjectReference{Kind: "Namespace", Name: "shop"}),
				ago(time.Hour, refTo("Pod", "two"), ownership.AgentNode, "system:node:n1", "kubelet/1"),
				ago(time.Hour, refTo("Widget", "w"), ownership.AgentServer, "system:apiserver", "", ownership.ObjectReference{Kind: "CustomResourceDefinition", Name: "widgets"}),
				{Object: set, By: ownership.DeletionAgent{Kind: ownership.AgentUnknown}, Because: []ownership.ObjectReference{web, one}},
				{Object: web, By: ownership.DeletionAgent{Kind: ownership.AgentUnknown}},
			},
			Earlier: []ownership.ExplainedDeletion{ago(2*time.Hour, one, ownership.AgentUser, "jane", "")},
		}, `
Pod shop/web-1 was deleted 60m ago by controller namespace-controller with policy Background, because its namespace was deleted.
Pod shop/two was deleted 60m ago by node n1 with policy Background.
Widget shop/w was deleted 60m ago by the API server with policy Background, because its definition was deleted.
ReplicaSet shop/web-abc was deleted (user not recorded), because its owners Deployment web and Pod web-1 were gone.
It is not known how Deployment shop/web was deleted.
Before, Pod shop/web-1 was deleted 120m ago by jane with policy Background (--uid web-1).`},
		"on hold": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateLiving, Hold: &ownership.Hold{
			Message: "the undeletion of deployment.apps/web is not finished", Remedy: `continue with "kindred undelete -n shop deployment.apps/web"`,
		}}, `
Pod shop/web-1 exists and has no owner: it stays until it is deleted.
Pod shop/web-1 is on hold: the undeletion of deployment.apps/web is not finished; continue with "kindred undelete -n shop deployment.apps/web".`},
		"by an operator": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateGone, Deletions: []ownership.ExplainedDeletion{
			ago(time.Minute, one, ownership.AgentServiceAccount, "system:serviceaccount:capi-system:manager", "manager/v1", set),
			ago(2*time.Minute, set, ownership.AgentUser, "jane", "manager/v1", web, one),
		}}, `
Pod shop/web-1 was deleted 60s ago by service account capi-system/manager (manager) with policy Background, while its owner ReplicaSet web-abc was being deleted.
ReplicaSet shop/web-abc was deleted 2m ago by jane (manager) with policy Background, while its owners Deployment web and Pod web-1 were being deleted.`},
		"hidden owners": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateGone, Deletions: []ownership.ExplainedDeletion{
			hiding(1, ago(time.Minute, one, ownership.AgentGarbageCollector, "gc", "")),
			hiding(2, ago(time.Minute, one, ownership.AgentGarbageCollector, "gc", "")),
			hiding(1, ago(time.Minute, one, ownership.AgentGarbageCollector, "gc", "", set)),
			hiding(1, ago(time.Minute, one, ownership.AgentUser, "jane", "manager/v1")),
		}}, `
Pod shop/web-1 was deleted 60s ago by the garbage collector, because 1 owner that you may not read was gone.
Pod shop/web-1 was deleted 60s ago by the garbage collector, because 2 owners that you may not read were gone.
Pod shop/web-1 was deleted 60s ago by the garbage collector, because its owners ReplicaSet web-abc and 1 more object that you may not read were gone.
Pod shop/web-1 was deleted 60s ago by jane (manager) with policy Background, while 1 owner that you may not read was being deleted.`},
		"an owner in another namespace": {ownership.OwnershipExplanationStatus{Object: one, State: ownership.StateGone, Deletions: []ownership.ExplainedDeletion{
			astray(ago(time.Minute, one, ownership.AgentGarbageCollector, "gc", ""), web),
			astray(ago(time.Minute, one, ownership.AgentGarbageCollector, "gc", "", set), web),
		}}, `
Pod shop/web-1 was deleted 60s ago by the garbage collector, because its reference to Deployment web is invalid, because the owner is in another namespace.
Pod shop/web-1 was deleted 60s ago by the garbage collector, because its owner ReplicaSet web-abc was gone; its reference to Deployment web is invalid, because the owner is in another namespace.`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sentences(&tt.status, clocktesting.NewFakePassiveClock(noon))
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(tt.want), "\n"), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhyRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"why":              "accepts between 1 and 2 arg(s)",
		"why pod/a -o dot": `--output is "dot", it must be json or yaml`,
		"why --uid":        "flag needs an argument",
	} {
		_, errOut, code := run(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%s: status %d, %q", args, code, errOut)
		}
	}
}
