// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// admins restricts access to devices in use to namespaces with the admin-access label (KEP-5018).
type admins struct{ namespaces corev1client.NamespacesGetter }

// mayRequest checks the first request for admin access in a claim or template.
func (a admins) mayRequest(ctx context.Context, c *check.Checker, requests []resourcev1.DeviceRequest, namespace string) {
	for i := range requests {
		if r := requests[i].Exactly; r != nil && ptr.Deref(r.AdminAccess, false) {
			a.check(ctx, c, namespace, specPath.Child("devices", "requests").Index(i).Child("adminAccess"))
			return
		}
	}
}

// mayAllocate checks a new allocation with admin access.
func (a admins) mayAllocate(ctx context.Context, c *check.Checker, allocation, old *resourcev1.AllocationResult, namespace string) {
	if firstAdmin(old) >= 0 {
		return // an allocation is immutable
	}
	i := firstAdmin(allocation)
	if i >= 0 {
		a.check(ctx, c, namespace, statusPath.Child("allocation", "devices", "results").Index(i).Child("adminAccess"))
	}
}

func firstAdmin(a *resourcev1.AllocationResult) int {
	if a == nil {
		return -1
	}
	for i := range a.Devices.Results {
		if ptr.Deref(a.Devices.Results[i].AdminAccess, false) {
			return i
		}
	}
	return -1
}

func (a admins) check(ctx context.Context, c *check.Checker, name string, path *field.Path) {
	const label = resourcev1.DRAAdminNamespaceLabelKey
	namespace, err := a.namespaces.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		c.Add(field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err)))
		return
	}
	if namespace.Labels[label] != "true" {
		c.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", label))
	}
}

// writers checks permissions for the parts of a claim's status: permission to update
// resourceclaims/status is not enough (KEP-4381, granular status authorization).
type writers struct {
	authorizer authorizer.UnconditionalAuthorizer
}

// mayBind requires permission to update resourceclaims/binding in all namespaces, which the
// scheduler has, for changes of allocation and reservations.
func (w writers) mayBind(ctx context.Context, c *check.Checker, status, old *resourcev1.ResourceClaimStatus) {
	if equality.Semantic.DeepEqual(status.Allocation, old.Allocation) && equality.Semantic.DeepEqual(status.ReservedFor, old.ReservedFor) {
		return
	}
	path := statusPath.Child("allocation")
	request, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		unknownRequest(c, path, err)
		return
	}
	if err := w.ask(ctx, asked(request, request.GetVerb(), resourcev1.SubresourceBinding, "", "")); err != nil {
		c.Forbidden(path, fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, request.GetVerb(), err))
	}
}

// mayReport requires permission for the driver whose device status changes. A service account whose
// token is bound to the claim's node needs less.
func (w writers) mayReport(ctx context.Context, c *check.Checker, status, old *resourcev1.ResourceClaimStatus) {
	drivers := changedDrivers(status.Devices, old.Devices)
	if status.Allocation == nil || len(drivers) == 0 {
		return
	}
	path := statusPath.Child("devices")
	request, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		unknownRequest(c, path, err)
		return
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + request.GetVerb()}
	if node := nodeOf(status.Allocation); node != "" && node == nodeOfCaller(request.GetUser()) {
		verbs = []string{resourcev1.VerbPrefixAssociatedNode + request.GetVerb(), verbs[0]}
	}
	for _, driver := range sets.List(drivers) {
		if err := w.askAny(ctx, request, verbs, driver); err != nil {
			c.Forbidden(path, fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err))
		}
	}
}

func unknownRequest(c *check.Checker, path *field.Path, err error) {
	c.Add(field.InternalError(path, fmt.Errorf("cannot build authorizer attributes: %w", err)))
}

// changedDrivers returns the drivers whose devices were added, changed or removed.
func changedDrivers(devices, old []resourcev1.AllocatedDeviceStatus) sets.Set[string] {
	before := map[deviceID]*resourcev1.AllocatedDeviceStatus{}
	for i := range old {
		before[reportedID(&old[i])] = &old[i]
	}
	drivers := sets.New[string]()
	for i := range devices {
		id := reportedID(&devices[i])
		if was, found := before[id]; !found || !equality.Semantic.DeepEqual(*was, devices[i]) {
			drivers.Insert(id.Driver)
		}
		delete(before, id)
	}
	for id := range before {
		drivers.Insert(id.Driver)
	}
	return drivers
}

// nodeOf returns the node of an allocation; empty if it is not for exactly one.
func nodeOf(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// nodeOfCaller returns the node that the caller's service account token is bound to, or "".
func nodeOfCaller(caller user.Info) string {
	if _, _, err := serviceaccount.SplitUsername(caller.GetName()); err != nil {
		return ""
	}
	nodes := caller.GetExtra()[serviceaccount.NodeNameKey]
	if len(nodes) != 1 || len(validation.IsDNS1123Subdomain(nodes[0])) > 0 {
		return ""
	}
	return nodes[0]
}

// asked returns the attributes of a virtual subresource, which exists only for authorization.
func asked(request authorizer.Attributes, verb, subresource, namespace, name string) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: request.GetUser(), Verb: verb, Namespace: namespace, Name: name,
		APIGroup: request.GetAPIGroup(), APIVersion: request.GetAPIVersion(),
		Resource: request.GetResource(), Subresource: subresource,
		ResourceRequest: true, Path: request.GetPath(),
	}
}

// askAny requires permission for one of the verbs. Its error is that of the first verb.
func (w writers) askAny(ctx context.Context, request authorizer.Attributes, verbs []string, driver string) error {
	var first error
	for _, verb := range verbs {
		err := w.ask(ctx, asked(request, verb, resourcev1.SubresourceDriver, request.GetNamespace(), driver))
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// ask returns an error unless the caller is allowed. RBAC can allow a request and return an error,
// if it could not evaluate some other role.
func (w writers) ask(ctx context.Context, a authorizer.Attributes) error {
	decision, reason, err := w.authorizer.Authorize(ctx, a)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil && reason != "":
		reason = fmt.Sprintf("%v: %s", err, reason)
	case err != nil:
		reason = err.Error()
	}
	return responsewriters.ForbiddenStatusError(a, reason)
}
