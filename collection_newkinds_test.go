// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred"
)

// TestNewKindsAreCollectedWithinASecond: within a second after a CRD is served, dependents of an
// absent owner of that kind are collected. Within a second after the first object is accepted (the
// API delays it by two seconds, so that other servers see the CRD), an owner can be deleted and its
// dependents are collected. The test repeats this while older kinds are created and deleted.
//
// The second is the collector's own. On a busy machine the API shows a kind in discovery late, and any
// collection takes longer, so both are measured at the same time: discovery, and the collection of a
// ConfigMap that was deleted together with the owner. The collector reads discovery at doubling
// delays, so it sees a kind at most as late again as the kind is shown.
func TestNewKindsAreCollectedWithinASecond(t *testing.T) {
	o := startOwning(t, kindred.Options{})
	for i := range 10 {
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprintf("Widget%d", i)}
		dependent := fmt.Sprintf("of-%d", i)
		o.configMap(dependent, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind.Kind, Name: "never", UID: "never"})
		gvr := o.serve(strings.ToLower(kind.Kind)+"s", kind.Kind)
		served := time.Now()
		shown := o.awaitDiscovery(gvr)
		compared := o.deleteOwner("compared-" + dependent)
		gone := o.collected(object{configMapsResource, dependent}, compared)
		late := (<-shown).Sub(served)
		dangling := gone[0].Sub(gone[1]) - 2*late
		if dangling > time.Second {
			t.Errorf("%s, shown after %v: the dependent of an absent owner was collected %v later than the collector could see the kind", kind.Kind, late, dangling)
		}

		top := o.custom(gvr, kind.Kind, "top")
		o.custom(gvr, kind.Kind, "dependent", owner(kind, top))
		o.configMap(dependent, owner(kind, top))
		o.must(o.dynamic.Resource(gvr).Namespace("default").Delete(o.Context(), "top", metav1.DeleteOptions{}))
		compared = o.deleteOwner("compared-" + dependent)
		gone = o.collected(object{gvr, "dependent"}, object{configMapsResource, dependent}, compared)
		for i, name := range []string{"custom resource", "ConfigMap"} {
			if later := gone[i].Sub(gone[2]); later > time.Second {
				t.Errorf("%s: its dependent %s was collected %v after that of a ConfigMap", kind.Kind, name, later)
			}
		}
		t.Logf("%s, shown after %v: absent owner %v, deleted owner %v and %v later", kind.Kind, late, dangling, gone[0].Sub(gone[2]), gone[1].Sub(gone[2]))
		if i%2 == 1 {
			o.must(o.crds.Delete(o.Context(), gvr.GroupResource().String(), metav1.DeleteOptions{}))
		}
	}
}

// awaitDiscovery returns a channel that gets the time at which discovery shows a resource.
func (o *owning) awaitDiscovery(gvr schema.GroupVersionResource) <-chan time.Time {
	shown := make(chan time.Time, 1)
	go func() {
		defer close(shown)
		for ; o.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
			_, lists, _ := o.Discovery().ServerGroupsAndResources()
			for _, list := range lists {
				if list.GroupVersion == gvr.GroupVersion().String() && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }) {
					shown <- time.Now()
					return
				}
			}
		}
	}()
	return shown
}

// object is an object of the namespace default.
type object struct {
	resource schema.GroupVersionResource
	name     string
}

// deleteOwner creates an owner and a dependent of a kind that has long been served, deletes the owner, and
// returns the dependent.
func (o *owning) deleteOwner(name string) object {
	o.Helper()
	top := o.configMap(name)
	dependent := o.configMap("of-"+name, owner(configMapKind, top))
	o.removeConfigMap(name, metav1.DeletePropagationBackground)
	return object{configMapsResource, dependent.Name}
}

// collected waits until all objects are gone, and returns when each was found gone.
func (o *owning) collected(objects ...object) []time.Time {
	o.Helper()
	gone := make([]time.Time, len(objects))
	eventually(o.T, "all dependents are collected", func(ctx context.Context) (bool, error) {
		for i, object := range objects {
			if !gone[i].IsZero() {
				continue
			}
			_, err := o.dynamic.Resource(object.resource).Namespace("default").Get(ctx, object.name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				gone[i] = time.Now()
			case err != nil:
				return false, err
			}
		}
		return !slices.ContainsFunc(gone, time.Time.IsZero), nil
	})
	return gone
}
