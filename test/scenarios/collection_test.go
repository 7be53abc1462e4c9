// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// family is a tree of ConfigMaps: a root, branches, and leaves. Some leaves have a second owner.
// One branch has the finalizer orphan, so its leaves are orphaned unless its own owner is deleted
// in the foreground, because then the branch is deleted in the foreground too.
type family struct {
	corev1client.ConfigMapInterface
	t *testing.T
	// left are the objects that remain after the deletion of the root, with their owners.
	left map[string]string
}

const (
	branches = 20
	leaves   = 150 // of each branch
	letGo    = 7   // the branch with the finalizer
)

func plantFamily(t *testing.T, client kubernetes.Interface, namespace string, policy metav1.DeletionPropagation) *family {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &family{client.CoreV1().ConfigMaps(namespace), t, map[string]string{"keeper": ""}}
	root, keeper := f.add("root", nil), f.add("keeper", nil)
	group, _ := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for b := range branches {
		var finalizers []string
		if b == letGo {
			finalizers = []string{metav1.FinalizerOrphanDependents}
		}
		name := fmt.Sprintf("branch-%d", b)
		branch := f.add(name, finalizers, root)
		for l := range leaves {
			leaf, owners := fmt.Sprintf("leaf-%d-%d", b, l), []*corev1.ConfigMap{branch}
			switch {
			case l%50 == 0:
				owners = append(owners, keeper)
				f.left[leaf] = "keeper"
			case b == letGo && policy == metav1.DeletePropagationBackground:
				f.left[leaf] = ""
			}
			group.Go(func() error { return f.create(leaf, nil, owners...) })
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *family) create(name string, finalizers []string, owners ...*corev1.ConfigMap) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers, Labels: map[string]string{"family": ""}}}
	for _, owner := range owners {
		object.OwnerReferences = append(object.OwnerReferences,
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)})
	}
	_, err := f.Create(context.Background(), object, metav1.CreateOptions{})
	return err
}

func (f *family) add(name string, finalizers []string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	f.t.Helper()
	if err := f.create(name, finalizers, owners...); err != nil {
		f.t.Fatal(err)
	}
	created, err := f.Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return created
}

// now returns the existing objects and the names of their owners.
func (f *family) now() map[string]string {
	f.t.Helper()
	list, err := f.List(f.t.Context(), metav1.ListOptions{LabelSelector: "family"})
	if err != nil {
		f.t.Fatal(err)
	}
	found := map[string]string{}
	for _, o := range list.Items {
		var owners []string
		for _, ref := range o.OwnerReferences {
			owners = append(owners, ref.Name)
		}
		found[o.Name] = strings.Join(owners, ",")
	}
	return found
}

// TestKilledDuringACollection: the process is killed repeatedly while thousands of dependents are
// collected. The same objects remain as without the kills.
func TestKilledDuringACollection(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "1")
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		name := strings.ToLower(string(policy))
		f := plantFamily(t, c.client(t), name, policy)
		before := len(f.now())
		if err := f.Delete(t.Context(), "root", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		amid := 0
		for _, after := range []time.Duration{50, 100, 200, 400} {
			time.Sleep(after * time.Millisecond)
			c.kill(t)
			c.again(t)
			f.ConfigMapInterface = c.client(t).CoreV1().ConfigMaps(name)
			if n := len(f.now()); n < before && n > len(f.left) {
				amid++
			}
		}
		if amid == 0 {
			t.Errorf("%s: no kill was in the middle of the collection", policy)
		}
		t.Logf("%s: of four times, it was killed in the middle %d times", policy, amid)
		deadline := time.Now().Add(time.Minute)
		for len(f.now()) != len(f.left) && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second) // no further object is deleted
		if diff := cmp.Diff(f.left, f.now()); diff != "" {
			t.Errorf("%s: objects and their owners (-want +got):\n%s", policy, diff)
		}
	}
}
