// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"net/netip"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/part"
)

// A cluster reports on the caches that its controllers read. They see each new object of the kinds
// that controllers watch, and other kinds are unknown to them.
func TestCachesSeeNewObjects(t *testing.T) {
	dir, err := datadir.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), Config{Dir: dir, BindAddress: net.IPv4(127, 0, 0, 1),
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	api, err := client.New(configFor(c.server, part.Identity{Info: adminUser, Agent: "test"}), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !c.term.Load().controllerStarts.Complete(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the controllers do not start")
		}
	}
	web := metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web.Labels},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Image: "v1"}}}}
	selector := &metav1.LabelSelector{MatchLabels: web.Labels}
	once := template
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	for kind, object := range map[schema.GroupKind]client.Object{
		{Group: "apps", Kind: "Deployment"}:         &appsv1.Deployment{ObjectMeta: web, Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: selector, Template: template}},
		{Group: "apps", Kind: "ReplicaSet"}:         &appsv1.ReplicaSet{ObjectMeta: web, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: selector, Template: template}},
		{Group: "apps", Kind: "DaemonSet"}:          &appsv1.DaemonSet{ObjectMeta: web, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}},
		{Group: "apps", Kind: "ControllerRevision"}: &appsv1.ControllerRevision{ObjectMeta: web, Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{}`)}},
		{Group: "batch", Kind: "Job"}:               &batchv1.Job{ObjectMeta: web, Spec: batchv1.JobSpec{Suspend: new(true), Template: once}},
		{Kind: "Service"}:                           &corev1.Service{ObjectMeta: web, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
	} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		version := object.GetResourceVersion()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			seen, known := c.term.Load().seen(kind, version)
			if seen && known {
				break
			}
			if !known || time.Now().After(end) {
				t.Fatalf("%v at %s: seen %v, known %v", kind, version, seen, known)
			}
		}
		if seen, known := c.term.Load().seen(kind, "9000000000000"); seen || !known {
			t.Errorf("%v that was never written: seen %v, known %v", kind, seen, known)
		}
	}
	if seen, known := c.term.Load().seen(schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}, "9000000000000"); !seen || known {
		t.Errorf("network policies, which no controller watches: seen %v, known %v", seen, known)
	}
}
