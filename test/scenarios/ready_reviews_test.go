// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestReadyMeansThatReviewsAreComplete: as soon as /readyz succeeds, reviews know custom resources
// too, although their kinds are served later than others after a crash. A preview that missed them
// would hide what a deletion takes along.
func TestReadyMeansThatReviewsAreComplete(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node")
	define(t, c, "reviewed", definitions)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := createThings(t, c)
		if err == nil {
			break
		}
		if time.Now().After(deadline) { // until the API serves the kinds
			t.Fatal(err)
		}
	}
	for i := range 3 {
		c.kill(t)
		started := make(chan error, 1)
		go func() { started <- c.start("--no-node") }()
		client := firstReady(t, c)
		if n := thingsInTree(t, client); n != definitions {
			t.Errorf("start %d: a tree has %d dependents as soon as the cluster is ready, want %d", i, n, definitions)
		}
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
}

// createThings creates a ConfigMap and a dependent of each kind, unless they exist.
func createThings(t *testing.T, c *cluster) error {
	ctx, client := context.Background(), c.client(t)
	owner, err := client.CoreV1().ConfigMaps("default").Get(ctx, "reviewed", metav1.GetOptions{})
	if err != nil {
		owner, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "reviewed"}}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	for i := range definitions {
		group := fmt.Sprintf("reviewed%d.example", i)
		path := "/apis/" + group + "/v1/namespaces/default/things"
		thing := &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1", Kind: "Thing"},
			ObjectMeta: metav1.ObjectMeta{Name: "one", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
			}},
		}
		body, err := json.Marshal(thing)
		if err != nil {
			return err
		}
		rest := client.Discovery().RESTClient()
		if _, err := rest.Get().AbsPath(path + "/one").DoRaw(ctx); err == nil {
			continue
		}
		if _, err := rest.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx); err != nil {
			return err
		}
	}
	return nil
}

func thingsInTree(t *testing.T, client rest.Interface) int {
	t.Helper()
	tree := &ownership.OwnershipTree{
		TypeMeta: metav1.TypeMeta{APIVersion: ownership.SchemeGroupVersion.String(), Kind: "OwnershipTree"},
		Spec:     ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "reviewed"}},
	}
	body, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Post().AbsPath("/apis/"+ownership.SchemeGroupVersion.String()+"/ownershiptrees").SetHeader("Content-Type", "application/json").Body(body).DoRaw(context.Background())
	if err == nil {
		err = json.Unmarshal(answer, tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, object := range tree.Status.Objects {
		if object.Kind == "Thing" {
			n++
		}
	}
	return n
}
