// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/test/etcd"
)

// TestMixedVersions: a server lists the resources that only another server has, and passes requests for them on, as the user who
// makes them. When that server stops, it does neither.
func TestMixedVersions(t *testing.T) {
	store := etcd.Local(t, t.TempDir()).Address
	newer := startShared(t, store, nil, 0)
	config := sharedConfig(t, store)
	config.Join, config.RuntimeConfig = invite(t, newer), map[string]string{"autoscaling/v1": "false"}
	older, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(older.Stop)
	client, err := kubernetes.NewForConfig(older.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	scalers := client.AutoscalingV1().HorizontalPodAutoscalers(metav1.NamespaceDefault)
	scaler := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "a", APIVersion: "apps/v1"}},
	}
	eventually(t, "the request is passed on", func() bool {
		_, err = scalers.Create(t.Context(), scaler, metav1.CreateOptions{})
		return err == nil
	})
	if _, err := client.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceDefault).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("the object, by the server's own version: %v", err)
	}
	if !lists(t, older.RESTConfig(), false) {
		t.Error("discovery does not list the other server's version")
	}
	if lists(t, older.RESTConfig(), true) {
		t.Error("the server lists a version as its own that it does not serve")
	}
	watched, err := scalers.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-watched.ResultChan(); event.Object.(*autoscalingv1.HorizontalPodAutoscaler).Name != "a" {
		t.Errorf("the watch has %+v", event)
	}
	watched.Stop()
	asNobody(t, client, older.RESTConfig())

	newer.Stop()
	eventually(t, "the version is not served any more", func() bool {
		_, err := scalers.Get(t.Context(), "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && !lists(t, older.RESTConfig(), false)
	})
}

// asNobody makes a request that is passed on, as a user without permissions.
func asNobody(t *testing.T, admin kubernetes.Interface, config *rest.Config) {
	t.Helper()
	if _, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = "system:serviceaccount:default:nobody"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AutoscalingV1().HorizontalPodAutoscalers(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a request without permission: %v", err)
	}
}

// lists reports whether discovery lists autoscaling/v1.
func lists(t *testing.T, config *rest.Config, own bool) bool {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client.NoPeerDiscovery = own
	groups, _, _, err := client.GroupsAndMaybeResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups.Groups {
		if group.Name == "autoscaling" {
			return slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == "v1" })
		}
	}
	return false
}
