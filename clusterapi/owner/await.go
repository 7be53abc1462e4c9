// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Grace is the time from the creation of an object until Await sets its condition. Usually its owner is created together with it. A status that is
// written meanwhile causes a reconciliation of Cluster API's core, which then reconciles the Cluster only a second later again.
const Grace = 5 * time.Second

// Object is an object with conditions.
type Object interface {
	client.Object
	conditions.Setter
}

// Await sets a condition of an object to False because its owner does not exist: with the reason WaitingForCluster or WaitingForMachine, by the kind of
// the owner. The owner's event causes the next reconciliation.
func Await(ctx context.Context, c client.Client, now time.Time, object Object, condition, kind string) (ctrl.Result, error) {
	// A move pauses a Cluster and deletes it before its objects, and leaves an object that has changed after it was copied.
	if annotations.HasPaused(object) || conditions.IsTrue(object, clusterv1.PausedCondition) {
		return ctrl.Result{}, nil
	}
	if left := Grace - now.Sub(object.GetCreationTimestamp().Time); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	before := object.DeepCopyObject().(client.Object)
	conditions.Set(object, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "WaitingFor" + kind, Message: missing(object, kind)})
	if equality.Semantic.DeepEqual(before, object) {
		return ctrl.Result{}, nil
	}
	err := c.Status().Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, client.IgnoreNotFound(err) // it may have been deleted meanwhile
}

// missing returns the message of the condition. The finalizer of an object that is being deleted stays without its owner, because the provider needs
// the owner to find what belongs to the object.
func missing(object client.Object, kind string) string {
	if !object.GetDeletionTimestamp().IsZero() {
		return fmt.Sprintf("the %[1]s of this object does not exist, so that the object cannot be cleaned up: create the %[1]s again, or remove the finalizers", kind)
	}
	return fmt.Sprintf("no %[1]s owns this object yet: create the %[1]s, or delete this object", kind)
}
