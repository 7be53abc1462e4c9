// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestAGraphIsRestoredOnHold creates a Deployment, its ReplicaSet and its pods on hold, one by one,
// as an undeletion does, while the controllers run. No object is duplicated.
func TestAGraphIsRestoredOnHold(t *testing.T) {
	ctx, api := t.Context(), client(t, start(t, t.TempDir()))
	apps, pods := api.AppsV1(), api.CoreV1().Pods("default")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	hold := map[string]string{ownership.HoldAnnotation: "test"}

	d := deployment(2)
	d.Annotations = hold
	d, err := apps.Deployments("default").Create(ctx, d, metav1.CreateOptions{})
	must(err)
	template := *d.Spec.Template.DeepCopy()
	template.Labels["pod-template-hash"] = "old"
	rs, err := apps.ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-old", Labels: template.Labels, Annotations: hold,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	must(err)
	// This Deployment is not on hold. When it is ready, the controllers have had time for the
	// others.
	other := deployment(1)
	other.Name, other.Spec.Selector.MatchLabels, other.Spec.Template.Labels = "other", map[string]string{"app": "other"}, map[string]string{"app": "other"}
	_, err = apps.Deployments("default").Create(ctx, other, metav1.CreateOptions{})
	must(err)
	available := func(name string, replicas int32) {
		t.Helper()
		eventually(t, name+" is available", func(ctx context.Context) (bool, error) {
			d, err := apps.Deployments("default").Get(ctx, name, metav1.GetOptions{})
			return err == nil && d.Status.AvailableReplicas == replicas && d.Status.ObservedGeneration == d.Generation, err
		})
	}
	available("other", 1)

	mine := map[types.UID]bool{}
	for i := range 2 {
		pod, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-old-", i), Labels: template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}},
			Spec: template.Spec,
		}, metav1.CreateOptions{})
		must(err)
		mine[pod.UID] = true
	}
	eventually(t, "the pods are ready", func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "pod-template-hash=old"})
		if err != nil {
			return false, err
		}
		ready := 0
		for _, pod := range list.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		return ready == 2, nil
	})
	held, err := apps.ReplicaSets("default").Get(ctx, rs.Name, metav1.GetOptions{})
	must(err)
	if held.ResourceVersion != rs.ResourceVersion {
		t.Errorf("the ReplicaSet was written while on hold: %+v", held)
	}

	// The owners are released last, so that the Deployment finds a complete ReplicaSet.
	release := []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, ownership.HoldAnnotation))
	_, err = apps.ReplicaSets("default").Patch(ctx, rs.Name, types.MergePatchType, release, metav1.PatchOptions{})
	must(err)
	eventually(t, "the ReplicaSet reports", func(ctx context.Context) (bool, error) {
		rs, err := apps.ReplicaSets("default").Get(ctx, rs.Name, metav1.GetOptions{})
		return err == nil && rs.Status.AvailableReplicas == 2, err
	})
	_, err = apps.Deployments("default").Patch(ctx, d.Name, types.MergePatchType, release, metav1.PatchOptions{})
	must(err)
	available("web", 2)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	must(err)
	for _, pod := range list.Items {
		if !mine[pod.UID] {
			t.Errorf("pod %s was recreated", pod.Name)
		}
	}
	sets, err := apps.ReplicaSets("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	must(err)
	if len(list.Items) != 2 || len(sets.Items) != 1 {
		t.Errorf("%d pods in %d ReplicaSets", len(list.Items), len(sets.Items))
	}
}
