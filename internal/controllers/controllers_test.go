// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/capublisher"
	"github.com/kindred-project/kindred/internal/controllers/deployment"
	"github.com/kindred-project/kindred/internal/controllers/endpointslice"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/podgc"
	"github.com/kindred-project/kindred/internal/controllers/replicaset"
	"github.com/kindred-project/kindred/internal/controllers/serviceaccount"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

// eventually waits until check returns true. The controllers run concurrently.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if check() {
			return
		}
	}
	t.Fatalf("timed out waiting: %s", what)
}

// runPods acts as a node agent: it makes pods ready, and removes pods that are being deleted. It
// counts the pods that were created.
func runPods(t *testing.T, w *controltest.World) (created func() int) {
	pods, err := w.API.Watch(ctx, &corev1.PodList{})
	w.Must(err)
	seen := make(chan int, 1)
	seen <- 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range pods.ResultChan() {
			pod := e.Object.(*corev1.Pod).DeepCopy()
			switch {
			case e.Type == watch.Added:
				seen <- <-seen + 1
				pod.Spec.NodeName = "node"
				if w.API.Update(ctx, pod) != nil {
					continue
				}
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
				_ = w.API.Status().Update(ctx, pod)
			case e.Type == watch.Modified && pod.DeletionTimestamp != nil:
				pod.Finalizers = nil
				_ = w.API.Update(ctx, pod)
			}
		}
	}()
	t.Cleanup(func() { pods.Stop(); <-done })
	return func() int {
		n := <-seen
		seen <- n
		return n
	}
}

func newDeployment(replicas int32, strategy appsv1.DeploymentStrategyType) *appsv1.Deployment {
	app := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Strategy: appsv1.DeploymentStrategy{Type: strategy},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app, Finalizers: []string{"test/running"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
			ProgressDeadlineSeconds: ptr.To[int32](600),
			RevisionHistoryLimit:    ptr.To[int32](10),
		},
	}
	if strategy == appsv1.RollingUpdateDeploymentStrategyType {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromString("25%"))}
	}
	return d
}

func edit(t *testing.T, w *controltest.World, change func(*appsv1.Deployment)) {
	t.Helper()
	eventually(t, "the Deployment is updated", func() bool {
		d := &appsv1.Deployment{}
		w.Must(w.API.Get(ctx, key, d))
		change(d)
		return w.API.Update(ctx, d) == nil
	})
}

func rolledOut(w *controltest.World, replicas int32) func() bool {
	return func() bool {
		d := &appsv1.Deployment{}
		w.Must(w.API.Get(ctx, key, d))
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.Replicas == replicas && s.UpdatedReplicas == replicas && s.AvailableReplicas == replicas
	}
}

func TestDeploymentWithItsControllers(t *testing.T) {
	for _, strategy := range []appsv1.DeploymentStrategyType{appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType} {
		t.Run(string(strategy), func(t *testing.T) {
			w := controltest.New(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
			w.Run(t,
				control.Controller{Name: deployment.Name, Add: deployment.Add},
				control.Controller{Name: replicaset.ReplicaSetName, Add: replicaset.AddReplicaSets},
				control.Controller{Name: podgc.Name, Add: podgc.Add(0)})
			created := runPods(t, w)

			start := time.Now()
			w.Must(w.API.Create(ctx, newDeployment(100, strategy)))
			eventually(t, "100 replicas", rolledOut(w, 100))
			t.Logf("0 to 100 in %v", time.Since(start).Round(time.Millisecond))
			if n := created(); n != 100 {
				t.Errorf("%d pods were created for 100 replicas", n)
			}

			edit(t, w, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](20) })
			eventually(t, "20 replicas", rolledOut(w, 20))

			edit(t, w, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "v2" })
			eventually(t, "20 replicas of v2", rolledOut(w, 20))
			if n := created(); n != 120 {
				t.Errorf("%d pods were created for 100 replicas and then 20 new ones", n)
			}

			// A deleted pod is replaced, and so is a pod that has lost its label.
			pods := &corev1.PodList{}
			w.Must(w.API.List(ctx, pods))
			w.Must(w.API.Delete(ctx, &pods.Items[0]))
			quarantined := &pods.Items[1]
			quarantined.Labels["app"] = "debug"
			eventually(t, "the pod is relabelled", func() bool {
				w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(quarantined), quarantined))
				quarantined.Labels["app"] = "debug"
				return w.API.Update(ctx, quarantined) == nil
			})
			eventually(t, "the pod is released and replaced", func() bool {
				w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(quarantined), quarantined))
				return len(quarantined.OwnerReferences) == 0 && created() == 122 && rolledOut(w, 20)()
			})
			// A matching orphan is adopted, and is then surplus.
			quarantined.Labels["app"] = "web"
			w.Must(w.API.Update(ctx, quarantined))
			eventually(t, "the orphan is adopted and a surplus pod deleted", func() bool {
				w.Must(w.API.List(ctx, pods))
				return len(pods.Items) == 20 && rolledOut(w, 20)()
			})
		})
	}
}

func TestServiceWithItsEndpointSlices(t *testing.T) {
	w := controltest.New(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	w.Run(t, control.Controller{Name: endpointslice.Name, Add: endpointslice.Add})
	w.Must(w.API.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}))
	has := func(n int) func() bool {
		return func() bool {
			found := &discoveryv1.EndpointSliceList{}
			w.Must(w.API.List(ctx, found))
			return len(found.Items) == 1 && len(found.Items[0].Endpoints) == n
		}
	}
	eventually(t, "an empty slice", has(0))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}},
	}
	w.Must(w.API.Create(ctx, pod))
	eventually(t, "one endpoint", has(1))
	pod.Labels["app"] = "other"
	w.Must(w.API.Update(ctx, pod))
	eventually(t, "no endpoint after the label has changed", has(0))
	slices := &discoveryv1.EndpointSliceList{}
	w.Must(w.API.List(ctx, slices))
	w.Must(w.API.Delete(ctx, &slices.Items[0]))
	eventually(t, "a new slice after the deletion", has(0))
}

func TestNamespaceGetsItsDefaultObjects(t *testing.T) {
	w := controltest.New(t)
	w.Run(t,
		control.Controller{Name: serviceaccount.AccountsName, Add: serviceaccount.AddAccounts},
		control.Controller{Name: capublisher.ConfigMapName, Add: capublisher.AddConfigMaps([]byte("PEM"))})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	w.Must(w.API.Create(ctx, ns))
	account, config := &corev1.ServiceAccount{}, &corev1.ConfigMap{}
	hasDefaults := func() bool {
		return w.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "default"}, account) == nil &&
			w.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "kube-root-ca.crt"}, config) == nil && config.Data["ca.crt"] == "PEM"
	}
	eventually(t, "the default objects exist", hasDefaults)
	config.Data["ca.crt"] = "spoilt"
	w.Must(w.API.Update(ctx, config))
	w.Must(w.API.Delete(ctx, account))
	eventually(t, "the changed and deleted objects are restored", hasDefaults)
	w.Must(w.API.Delete(ctx, config))
	eventually(t, "the deleted ConfigMap is restored", hasDefaults)
}
