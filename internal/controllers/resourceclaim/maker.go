// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// maker creates claims from templates, for owners of one kind.
type maker struct {
	kind   schema.GroupVersionKind
	client client.Client
	live   client.Reader
	events record.EventRecorder

	// created has the names of claims that were created for owners, until the status of the owners has
	// them. The names are generated, so that creating a claim twice would not fail.
	mu      sync.Mutex
	created map[types.NamespacedName]created
}

// created has the names of the claims of one owner.
type created struct {
	owner types.UID
	names map[string]string
}

func newMaker(env control.Env, kind schema.GroupVersionKind) *maker {
	return &maker{kind: kind, client: env.Client, live: env.Live, events: env.Events, created: map[types.NamespacedName]created{}}
}

// requests returns the owners that an index finds by the name of an object. It reads them into the list.
func (m *maker) requests(ctx context.Context, list client.ObjectList, field string, obj client.Object) []reconcile.Request {
	err := m.client.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{field: obj.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // cannot happen: the index exists
	}
	var requests []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		if owner := o.(client.Object); wantsClaims(owner) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
		}
		return nil
	})
	return requests
}

// read reads an owner from the cache, and reports whether claims are made for it: not while it is being
// deleted or held.
func (m *maker) read(ctx context.Context, key types.NamespacedName, owner client.Object) (bool, error) {
	if err := m.client.Get(ctx, key, owner, client.UnsafeDisableDeepCopy); err != nil {
		m.forget(key)
		return false, client.IgnoreNotFound(err)
	}
	return owner.GetDeletionTimestamp() == nil && !ownership.IsHeld(owner), nil
}

// failed records that a claim of an owner could not be made, and returns the error with the name of the claim.
func (m *maker) failed(owner client.Object, wanted string, err error) error {
	err = fmt.Errorf("%sResourceClaim %s: %w", m.kind.Kind, wanted, err)
	m.events.Event(owner, corev1.EventTypeWarning, "FailedResourceClaimCreation", err.Error())
	return err
}

// make returns the name of the claim that an owner wants from a template, and creates the claim if it does
// not exist.
func (m *maker) make(ctx context.Context, owner client.Object, wanted, from string) (string, error) {
	if name := m.find(ctx, owner, wanted); name != "" {
		return name, nil
	}
	template := &resourcev1.ResourceClaimTemplate{}
	key := client.ObjectKey{Namespace: owner.GetNamespace(), Name: from}
	if err := m.client.Get(ctx, key, template, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("resource claim template %q: %w", from, err)
	}
	claim := m.newClaim(owner, wanted, template)
	if err := m.client.Create(ctx, claim); err != nil {
		return "", fmt.Errorf("create ResourceClaim %s: %w", claim.Name, err)
	}
	m.remember(owner, wanted, claim.Name)
	return claim.Name, nil
}

// exists reports whether a claim whose name is recorded in an owner's status exists and belongs to the
// owner.
func (m *maker) exists(ctx context.Context, key client.ObjectKey, belongs func(*resourcev1.ResourceClaim) error) (bool, error) {
	claim := &resourcev1.ResourceClaim{}
	err := m.client.Get(ctx, key, claim, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = m.live.Get(ctx, key, claim)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && belongs(claim) == nil, err
}

// find returns the name of a claim that was created for an owner before; "" if there is none.
func (m *maker) find(ctx context.Context, owner client.Object, wanted string) string {
	list := &resourcev1.ResourceClaimList{}
	of := client.MatchingFields{owned.ControllerIndex: string(owner.GetUID())}
	if err := m.client.List(ctx, list, client.InNamespace(owner.GetNamespace()), of, client.UnsafeDisableDeepCopy); err != nil {
		return "" // cannot happen: the index exists
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Annotations[resourcev1.PodResourceClaimAnnotation] == wanted && claim.DeletionTimestamp == nil {
			return claim.Name
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.created[client.ObjectKeyFromObject(owner)]; c.owner == owner.GetUID() {
		return c.names[wanted]
	}
	return ""
}

func (m *maker) remember(owner client.Object, wanted, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := client.ObjectKeyFromObject(owner)
	if m.created[key].owner != owner.GetUID() {
		m.created[key] = created{owner.GetUID(), map[string]string{}}
	}
	m.created[key].names[wanted] = name
}

func (m *maker) forget(owner types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.created, owner)
}

// newClaim returns a claim that is made from a template. It is deleted with its owner.
func (m *maker) newClaim(owner client.Object, wanted string, template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	from := template.Spec.DeepCopy()
	annotations := map[string]string{}
	maps.Copy(annotations, from.Annotations)
	annotations[resourcev1.PodResourceClaimAnnotation] = wanted
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: baseName(owner.GetName(), wanted),
			Labels: from.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: m.kind.GroupVersion().String(), Kind: m.kind.Kind,
				Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
			}},
		},
		Spec: from.Spec,
	}
}

// baseName returns the base of a generated name. If it is too long, both parts are shortened in
// proportion, so that both can be recognized.
func baseName(owner, claim string) string {
	const most = 57 // leaves room for the generated suffix in 63 characters
	base := owner + "-" + claim + "-"
	if length := len(base); length > most {
		return owner[:len(owner)*most/length] + "-" + claim[:len(claim)*most/length]
	}
	return base
}
