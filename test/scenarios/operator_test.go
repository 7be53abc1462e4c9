// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// cleanup is the finalizer of the operator.
const cleanup = "operator.example.com/cleanup"

// operate runs an operator of ConfigMaps that cleans up as Cluster API does: when an object with
// its finalizer is being deleted, it deletes the dependents, waits for their deletion, and removes
// the finalizer.
func (s *session) operate() {
	s.Helper()
	config := s.cluster.config(s.T)
	config.UserAgent = "manager/v1.14"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := cleanUp(ctx, client.CoreV1().ConfigMaps(s.namespace)); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				s.Logf("operator: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	s.Cleanup(func() { stop(); <-done })
}

func cleanUp(ctx context.Context, client typedcorev1.ConfigMapInterface) error {
	all, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		object := &all.Items[i]
		if object.DeletionTimestamp == nil || !slices.Contains(object.Finalizers, cleanup) {
			continue
		}
		owned := dependentsOf(all.Items, object.UID)
		for _, dependent := range owned {
			if dependent.DeletionTimestamp == nil {
				if err := client.Delete(ctx, dependent.Name, metav1.DeleteOptions{}); err != nil {
					return err
				}
			}
		}
		if len(owned) == 0 {
			object.Finalizers = slices.DeleteFunc(object.Finalizers, func(f string) bool { return f == cleanup })
			if _, err := client.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func dependentsOf(all []corev1.ConfigMap, owner types.UID) (owned []*corev1.ConfigMap) {
	for i := range all {
		if slices.ContainsFunc(all[i].OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner }) {
			owned = append(owned, &all[i])
		}
	}
	return owned
}

// TestCascadeOfAnOperator: objects that an operator deletes because their owner is being deleted
// belong to that cascade. "why" leads to the root, and they are restored with the root. Objects
// that a user deletes meanwhile are not restored.
func TestCascadeOfAnOperator(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node"))
	create := func(name, owner string, finalizers string) {
		t.Helper()
		references := ""
		if owner != "" {
			references = `, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: ` + owner + `, uid: ` + s.jsonpath("{.metadata.uid}", "configmap", owner) + `}]`
		}
		s.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `, finalizers: [` + finalizers + `]` + references + `}, data: {of: ` + name + `}}`)
	}
	create("cluster", "", cleanup)
	create("machine-a", "cluster", cleanup)
	create("machine-b", "cluster", cleanup)
	create("secret-a", "machine-a", "")
	create("secret-b", "machine-b", "")
	create("token-b", "secret-b", "")
	create("unwanted", "cluster", "example.com/slow")
	s.kubectl("delete", "configmap", "cluster", "--wait=false")
	s.kubectl("delete", "configmap", "unwanted", "--wait=false")
	s.operate()
	s.kubectl("patch", "configmap", "unwanted", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.gone("configmap", "cluster")

	name := func(name string) string { return "ConfigMap " + s.namespace + "/" + name }
	root := name("cluster") + " was deleted * ago by kubernetes-admin (* with policy Background."
	machine := name("machine-b") + " was deleted * ago by kubernetes-admin (manager) with policy Background, while its owner ConfigMap cluster was being deleted."
	secret := name("secret-b") + " was deleted * ago by kubernetes-admin (manager) with policy Background, while its owner ConfigMap machine-b was being deleted."
	s.why("configmap/secret-b", secret, machine, root)
	s.why("configmap/token-b", name("token-b")+" was deleted * ago by the garbage collector, because its owner ConfigMap secret-b was gone.", secret, machine, root)

	s.undelete(`
OBJECT  OUTCOME  NOTES
ConfigMap/cluster  restored
├─ ConfigMap/machine-a  restored
│  └─ ConfigMap/secret-a  restored
├─ ConfigMap/machine-b  restored
│  └─ ConfigMap/secret-b  restored
│     └─ ConfigMap/token-b  restored
└─ ConfigMap/unwanted  left  it was deleted on its own, by kubernetes-admin at *

restored: 6, left: 1`, "configmap/cluster")
	s.prints(cleanup, "get", "configmap", "machine-b", "-o", "jsonpath={.metadata.finalizers[*]}")
	s.prints("token-b", "get", "configmap", "token-b", "-o", "jsonpath={.data.of}")
}
