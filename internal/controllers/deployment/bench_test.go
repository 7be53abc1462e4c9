// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

// bench is a reconciler with its own World, and a fake ReplicaSet controller that only writes
// status.
type bench struct {
	*controltest.World
	*reconciler
	t *testing.T
}

func newBench(t *testing.T, objs ...client.Object) bench {
	w := controltest.New(t, objs...)
	return bench{w, newReconciler(w.Env(), w.Seen), t}
}

func (b bench) step() ctrl.Result {
	b.t.Helper()
	b.Sync()
	result, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(err)
	return result
}

// run reconciles and updates the status of the ReplicaSets until nothing changes.
func (b bench) run() {
	b.t.Helper()
	for range 100 {
		before := b.fingerprint()
		b.step()
		for _, rs := range b.sets() {
			b.follow(rs, size(rs))
		}
		if b.fingerprint() == before {
			return
		}
	}
	b.t.Fatal("the Deployment keeps changing")
}

func (b bench) fingerprint() (out string) {
	for _, rs := range b.sets() {
		out += rs.Name + rs.ResourceVersion
	}
	return out + b.deployment().ResourceVersion
}

// follow sets the status of a ReplicaSet: it has all its pods, and some of them are available.
func (b bench) follow(rs *appsv1.ReplicaSet, available int32) {
	b.t.Helper()
	status := appsv1.ReplicaSetStatus{
		Replicas: size(rs), ReadyReplicas: available, AvailableReplicas: available, FullyLabeledReplicas: size(rs),
		ObservedGeneration: rs.Generation, TerminatingReplicas: ptr.To[int32](0), Conditions: rs.Status.Conditions,
	}
	if cmp.Equal(rs.Status, status) {
		return
	}
	rs.Status = status
	b.Must(b.API.Status().Update(ctx, rs))
}

func (b bench) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{}
	b.Must(b.API.Get(ctx, key, d))
	return d
}

// edit changes the Deployment as a user would.
func (b bench) edit(change func(*appsv1.Deployment)) {
	d := b.deployment()
	change(d)
	b.Must(b.API.Update(ctx, d))
}

func (b bench) setImage(image string) {
	b.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

// sets returns the ReplicaSets by revision.
func (b bench) sets() []*appsv1.ReplicaSet {
	list := &appsv1.ReplicaSetList{}
	b.Must(b.API.List(ctx, list))
	var out []*appsv1.ReplicaSet
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	slices.SortFunc(out, byRevision)
	return out
}

// shape describes the ReplicaSets by revision, such as "v1:3" for image v1 and 3 replicas.
func (b bench) shape() string {
	var out []string
	for _, rs := range b.sets() {
		out = append(out, fmt.Sprintf("%s:%d", rs.Spec.Template.Spec.Containers[0].Image, size(rs)))
	}
	return strings.Join(out, " ")
}

func (b bench) wantShape(want string) {
	b.t.Helper()
	if got := b.shape(); got != want {
		b.t.Errorf("ReplicaSets %q, want %q", got, want)
	}
}

func (b bench) wantProgress(status corev1.ConditionStatus, reason, message string) {
	b.t.Helper()
	d := b.deployment()
	c := getCondition(&d.Status, appsv1.DeploymentProgressing)
	if c == nil || c.Status != status || c.Reason != reason || c.Message != message {
		b.t.Errorf("Progressing is %+v, want %s %s %q", c, status, reason, message)
	}
}
