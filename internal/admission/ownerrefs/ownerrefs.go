// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerrefs checks permissions on owner references.
//
// A user who changes the owners of an existing object must be allowed to delete the
// object, since the garbage collector deletes it after its owners. A user who sets
// blockOwnerDeletion must be allowed to delete the owner, or to update the owner's
// finalizers as controllers may. The first refusal is 403 Forbidden; the second is
// 422 Unprocessable Entity (reason Invalid), as blockOwnerDeletion is documented.
// Upstream answers 403 to both, and accepts only the finalizers permission.
package ownerrefs

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
)

// Name is the plugin's name in the API server's configuration.
const Name = "OwnerReferencesPermissionEnforcement"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
	mapper     meta.RESTMapper
}

var (
	_ admission.ValidationInterface            = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &Plugin{}
	_ initializer.WantsRESTMapper              = &Plugin{}
)

// New returns the plugin.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *Plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// SetRESTMapper implements initializer.WantsRESTMapper.
func (p *Plugin) SetRESTMapper(m meta.RESTMapper) { p.mapper = m }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.authorizer == nil || p.mapper == nil {
		return fmt.Errorf("%s needs an authorizer and a RESTMapper", Name)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The strategy of pods/status restores the owners.
	if a.GetResource().GroupResource() == (schema.GroupResource{Resource: "pods"}) && a.GetSubresource() == "status" {
		return nil
	}
	owners, ok := ownersOf(a.GetObject())
	if !ok {
		return nil
	}
	before, _ := ownersOf(a.GetOldObject())
	if sameOwners(owners, before) {
		return nil
	}
	if err := p.checkDelete(ctx, a); err != nil {
		return err
	}
	blocking := newlyBlocking(owners, before)
	if len(blocking) == 0 || p.canFinalizeAnything(ctx, a) {
		return nil
	}
	for _, i := range blocking {
		if reason := p.checkBlock(ctx, a, owners[i]); reason != "" {
			return refuseBlocking(a, i, reason)
		}
	}
	return nil
}

// ownersOf returns an object's owner references. It returns false for an object
// without metadata.
func ownersOf(obj runtime.Object) ([]metav1.OwnerReference, bool) {
	if obj == nil {
		return nil, false
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, false
	}
	return m.GetOwnerReferences(), true
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	return len(a) == 0 && len(b) == 0 || equality.Semantic.DeepEqual(a, b)
}

// newlyBlocking returns the indexes of the owners for which blockOwnerDeletion is
// newly set.
func newlyBlocking(owners, before []metav1.OwnerReference) []int {
	wasBlocked := map[types.UID]bool{}
	for _, owner := range before {
		wasBlocked[owner.UID] = ptr.Deref(owner.BlockOwnerDeletion, false)
	}
	var found []int
	for i, owner := range owners {
		if ptr.Deref(owner.BlockOwnerDeletion, false) && !wasBlocked[owner.UID] {
			found = append(found, i)
		}
	}
	return found
}

// checkDelete refuses to change the owners of an object that the user may not delete.
// A new object may have any owner, since at worst the object itself is deleted.
func (p *Plugin) checkDelete(ctx context.Context, a admission.Attributes) error {
	if a.GetOperation() == admission.Create {
		return nil
	}
	decision, reason, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            "delete",
		Namespace:       a.GetNamespace(),
		APIGroup:        a.GetResource().Group,
		APIVersion:      a.GetResource().Version,
		Resource:        a.GetResource().Resource,
		Subresource:     a.GetSubresource(),
		Name:            a.GetName(),
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err))
}

// canFinalizeAnything reports whether the user may update the finalizers of all
// objects. If so, the owners, whose kind may be unknown, need not be checked.
func (p *Plugin) canFinalizeAnything(ctx context.Context, a admission.Attributes) bool {
	decision, _, _ := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "update", APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers", Name: "*", ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

// checkBlock returns why the user may not block an owner's deletion, or "".
func (p *Plugin) checkBlock(ctx context.Context, a admission.Attributes, owner metav1.OwnerReference) string {
	mappings, err := p.mappings(owner)
	if err != nil {
		return fmt.Sprintf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %v", owner.APIVersion, owner.Kind, err)
	}
	// A kind may have several resources: the user needs permission on each.
	for _, mapping := range mappings {
		reason, ok := p.canDelete(ctx, a, owner, mapping)
		if !ok {
			return fmt.Sprintf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't delete or set finalizers on: %s", reason)
		}
	}
	return ""
}

func (p *Plugin) mappings(owner metav1.OwnerReference) ([]*meta.RESTMapping, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, err
	}
	return p.mapper.RESTMappings(schema.GroupKind{Group: version.Group, Kind: owner.Kind}, version.Version)
}

// canDelete reports whether the user may delete an owner or update its finalizers,
// and if not, why.
func (p *Plugin) canDelete(ctx context.Context, a admission.Attributes, owner metav1.OwnerReference, mapping *meta.RESTMapping) (reason string, ok bool) {
	request := authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            "delete",
		APIGroup:        mapping.Resource.Group,
		APIVersion:      mapping.Resource.Version,
		Resource:        mapping.Resource.Resource,
		Name:            owner.Name,
		ResourceRequest: true,
	}
	// An owner is cluster-scoped or in the namespace of its dependent.
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		request.Namespace = a.GetNamespace()
	}
	decision, reason, err := p.authorizer.Authorize(ctx, request)
	if decision == authorizer.DecisionAllow {
		return "", true
	}
	request.Verb, request.Subresource = "update", "finalizers"
	if decision, _, _ := p.authorizer.Authorize(ctx, request); decision == authorizer.DecisionAllow {
		return "", true
	}
	if reason == "" && err != nil {
		reason = err.Error()
	}
	if reason == "" {
		reason = fmt.Sprintf("user %q cannot delete %s %q", a.GetUserInfo().GetName(), mapping.Resource.GroupResource(), owner.Name)
	}
	return reason, false
}

func refuseBlocking(a admission.Attributes, i int, reason string) error {
	path := field.NewPath("metadata", "ownerReferences").Index(i).Child("blockOwnerDeletion")
	// The name of a create is in the object.
	name := a.GetName()
	if m, err := meta.Accessor(a.GetObject()); name == "" && err == nil {
		name = m.GetName()
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), name, field.ErrorList{field.Invalid(path, true, reason)})
}
