// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

const allocatedClaim = `
metadata: {namespace: app, name: c}
spec: {devices: {requests: [{name: r}]}}
status:
  allocation:
    devices: {results: [{request: r, driver: d, pool: p, device: v0}, {request: r, driver: d, pool: p, device: v1, shareID: 11111111-2222-3333-4444-555555555555}]}
    nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}
  reservedFor: [{resource: pods, name: a, uid: a}]
`

func claimOf(t *testing.T, edit func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	t.Helper()
	c := read[resourcev1.ResourceClaim](t, allocatedClaim)
	if edit != nil {
		edit(c)
	}
	return c
}

func TestClaimStatus(t *testing.T) {
	pending := claimOf(t, func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} })
	for name, test := range map[string]struct {
		status string
		want   []string
	}{
		"reserved without devices": {`{reservedFor: [{resource: pods, name: a, uid: a}, {uid: a}]}`, []string{
			"status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
			"status.reservedFor[1].resource: Required value", "status.reservedFor[1].name: Required value", `status.reservedFor[1]: Duplicate value: "a"`}},
		"a bad allocation": {`
allocation:
  nodeSelector: {}
  devices:
    results:
    - {request: other, driver: D_, pool: "", device: A, shareID: x, tolerations: [{}]}
    - {request: r, driver: d, pool: p, device: v, bindingConditions: [a, a], bindingFailureConditions: [a]}
    - {request: r, driver: d, pool: p, device: v, bindingConditions: [a]}
    - {request: r, driver: d, pool: p, device: v, bindingFailureConditions: [a, b, c, d, e]}
    config: [{requests: [x]}, {source: FromHere, opaque: {driver: d, parameters: {}}}]`, []string{
			"status.allocation.nodeSelector.nodeSelectorTerms: Required value",
			`status.allocation.devices.results[0].request: Invalid value: "other": must be the name`,
			`status.allocation.devices.results[0].driver: Invalid value: "D_"`, "status.allocation.devices.results[0].pool: Required value",
			`status.allocation.devices.results[0].device: Invalid value: "A"`, `status.allocation.devices.results[0].shareID: Invalid value: "x"`,
			"status.allocation.devices.results[0].tolerations[0].operator: Required value",
			`status.allocation.devices.results[1].bindingConditions[1]: Duplicate value: "a"`,
			`status.allocation.devices.results[1].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions`,
			"status.allocation.devices.results[2].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
			"status.allocation.devices.results[3].bindingFailureConditions: Too many: 5: must have at most 4 items",
			"status.allocation.devices.results[3].bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions",
			`status.allocation.devices.config[0].requests[0]: Invalid value: "x": must be the name`, "status.allocation.devices.config[0].source: Required value", "status.allocation.devices.config[0].opaque: Required value",
			`status.allocation.devices.config[1].source: Unsupported value: "FromHere"`}},
		"what drivers say": {`
allocation: {devices: {results: [{request: r, driver: d, pool: p, device: v}]}}
devices:
- {driver: d, pool: p, device: v, data: [], networkData: {interfaceName: "` + strings.Repeat("x", 257) + `", hardwareAddress: "` + strings.Repeat("x", 129) + `", ips: [10.0.0.1/24, 10.0.0.1/24, a]}}
- {driver: d, pool: p, device: w, conditions: [{}]}
- {driver: d, pool: p, device: v, shareID: x}
- {driver: d, pool: p, device: v}`, []string{
			`status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object`,
			"status.devices[0].networkData.interfaceName: Too long", "status.devices[0].networkData.hardwareAddress: Too long",
			`status.devices[0].networkData.ips[1]: Duplicate value: "10.0.0.1/24"`, `status.devices[0].networkData.ips[2]: Invalid value: "a"`,
			`status.devices[1]: Invalid value: {"Driver":"d","Pool":"p","Device":"w","ShareID":""}: must be an allocated device in the claim`,
			"status.devices[1].conditions[0].type: Required value", "status.devices[1].conditions[0].status: Required value",
			"status.devices[1].conditions[0].lastTransitionTime: Required value", "status.devices[1].conditions[0].reason: Required value",
			`status.devices[2].shareID: Invalid value: "x"`, "status.devices[2]: Invalid value",
			`status.devices[3]: Duplicate value`}},
	} {
		t.Run(name, func(t *testing.T) {
			c := pending.DeepCopy()
			c.Status = *read[resourcev1.ResourceClaimStatus](t, test.status)
			compare(t, check.Run(func(to *check.Checker) { validateStatus(to, c, pending) }), test.want...)
		})
	}
}

func TestClaimStatusUpdate(t *testing.T) {
	old := claimOf(t, nil)
	for name, test := range map[string]struct {
		edit func(*resourcev1.ResourceClaim)
		want []string
	}{
		"as it was":         {nil, nil},
		"taken back":        {func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} }, nil},
		"another device":    {func(c *resourcev1.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Device = "v9" }, []string{"status.allocation: Invalid value"}},
		"another pod":       {func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor[0].UID = "b" }, nil},
		"one fewer, at end": {func(c *resourcev1.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{}; c.Status.ReservedFor = nil }, nil},
		"another, at end": {func(c *resourcev1.ResourceClaim) {
			c.DeletionTimestamp = &metav1.Time{}
			c.Status.ReservedFor[0].UID = "b"
		}, []string{
			"status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, check.Run(func(c *check.Checker) { validateStatus(c, claimOf(t, test.edit), old) }), test.want...)
		})
	}
}

// TestReturned checks that the status of a device is removed with the device.
func TestReturned(t *testing.T) {
	devices := func(names ...string) []resourcev1.AllocatedDeviceStatus {
		var out []resourcev1.AllocatedDeviceStatus
		for _, name := range names {
			out = append(out, resourcev1.AllocatedDeviceStatus{Driver: "d", Pool: "p", Device: name})
		}
		return out
	}
	old := claimOf(t, nil)
	for name, test := range map[string]struct {
		edit func(*resourcev1.ResourceClaim)
		want []resourcev1.AllocatedDeviceStatus
	}{
		"kept":       {func(*resourcev1.ResourceClaim) {}, devices("v0", "v7")},
		"taken back": {func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil }, devices("v7")},
		"only its namesake": {func(c *resourcev1.ResourceClaim) {
			c.Status.Allocation.Devices.Results = c.Status.Allocation.Devices.Results[1:]
		}, devices("v7")},
	} {
		c := claimOf(t, test.edit)
		c.Status.Devices = devices("v0", "v7")
		forgetReturned(&c.Status, &old.Status)
		if diff := cmp.Diff(test.want, c.Status.Devices); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestClaimState(t *testing.T) {
	deleted := metav1.Time{Time: noon}
	for want, edit := range map[string]func(*resourcev1.ResourceClaim){
		"pending":                    func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} },
		"allocated":                  func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor = nil },
		"allocated,reserved":         func(*resourcev1.ResourceClaim) {},
		"deleted":                    func(c *resourcev1.ResourceClaim) { c.Status.Allocation, c.DeletionTimestamp = nil, &deleted },
		"deleted,allocated,reserved": func(c *resourcev1.ResourceClaim) { c.DeletionTimestamp = &deleted },
	} {
		if got := claimState(claimOf(t, edit)); got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// TestAdminAccess checks that only labelled namespaces get admin access.
func TestAdminAccess(t *testing.T) {
	namespace := func(name, value string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{resourcev1.DRAAdminNamespaceLabelKey: value}}}
	}
	a := admins{fake.NewClientset(namespace("admins", "true"), namespace("others", "yes")).CoreV1()}
	const refused = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	requests := []resourcev1.DeviceRequest{{Name: "a"}, {Name: "b", Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: new(true)}}}
	granted := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{}, {AdminAccess: new(true)}}}}
	const path = "spec.devices.requests[1].adminAccess: "
	compare(t, check.Run(func(c *check.Checker) { a.mayRequest(t.Context(), c, requests, "admins") }))
	compare(t, check.Run(func(c *check.Checker) { a.mayRequest(t.Context(), c, requests, "others") }), path+"Forbidden: "+refused)
	compare(t, check.Run(func(c *check.Checker) { a.mayRequest(t.Context(), c, requests, "gone") }), path+"Internal error: could not retrieve namespace to verify admin access")
	compare(t, check.Run(func(c *check.Checker) { a.mayRequest(t.Context(), c, requests[:1], "others") }))

	compare(t, check.Run(func(c *check.Checker) { a.mayAllocate(t.Context(), c, granted, nil, "admins") }))
	compare(t, check.Run(func(c *check.Checker) { a.mayAllocate(t.Context(), c, granted, nil, "others") }), "status.allocation.devices.results[1].adminAccess: Forbidden: "+refused)
	compare(t, check.Run(func(c *check.Checker) { a.mayAllocate(t.Context(), c, granted, granted, "others") }))
	compare(t, check.Run(func(c *check.Checker) { a.mayAllocate(t.Context(), c, nil, nil, "others") }))
}

// rules is an authorizer that allows the listed requests: "verb resource/subresource namespace
// name".
type rules []string

func (r rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := strings.TrimRight(strings.Join([]string{a.GetVerb(), a.GetResource() + "/" + a.GetSubresource(), a.GetNamespace(), a.GetName()}, " "), " ")
	for _, allowed := range r {
		if asked == allowed {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "not listed", errors.New("broken role")
}

// asking returns the context of a status update by the named user; bound is the node that the
// user's token is bound to.
func asking(t *testing.T, name, bound string) context.Context {
	t.Helper()
	who := &user.DefaultInfo{Name: name}
	if bound != "" {
		who.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {bound}}
	}
	ctx := request.WithRequestInfo(request.WithUser(t.Context(), who), &request.RequestInfo{
		IsResourceRequest: true, Verb: "update", APIGroup: "resource.k8s.io", APIVersion: "v1",
		Resource: "resourceclaims", Subresource: "status", Namespace: "app", Name: "c", Path: http.MethodPut,
	})
	return ctx
}

func TestStatusWriters(t *testing.T) {
	const driver = "system:serviceaccount:app:driver"
	const refusedNear = `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[associated-node:update arbitrary-node:update]" permission: `
	const refusedFar = `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: `
	reported := func(drivers ...string) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			for _, d := range drivers {
				c.Status.Devices = append(c.Status.Devices, resourcev1.AllocatedDeviceStatus{Driver: d})
			}
		}
	}
	returned := func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} }
	for name, test := range map[string]struct {
		rules     rules
		who, node string
		edit      func(*resourcev1.ResourceClaim)
		want      []string
	}{
		"nothing":       {nil, "a", "", nil, nil},
		"bind":          {rules{"update resourceclaims/binding"}, "a", "", returned, nil},
		"may not bind":  {nil, "a", "", returned, []string{`status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: resourceclaims.resource.k8s.io is forbidden: User "a" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope: broken role: not listed`}},
		"report":        {rules{"arbitrary-node:update resourceclaims/driver app x"}, "a", "", reported("x"), nil},
		"for two":       {rules{"arbitrary-node:update resourceclaims/driver app x"}, "a", "", reported("x", "y"), []string{refusedFar + `resourceclaims.resource.k8s.io "y" is forbidden`}},
		"near":          {rules{"associated-node:update resourceclaims/driver app x"}, driver, "n1", reported("x"), nil},
		"near, by far":  {rules{"arbitrary-node:update resourceclaims/driver app x"}, driver, "n1", reported("x"), nil},
		"near, refused": {nil, driver, "n1", reported("x"), []string{refusedNear + `resourceclaims.resource.k8s.io "x" is forbidden: User "` + driver + `" cannot associated-node:update`}},
		"elsewhere":     {rules{"associated-node:update resourceclaims/driver app x"}, driver, "n2", reported("x"), []string{refusedFar}},
		"no account":    {rules{"associated-node:update resourceclaims/driver app x"}, "a", "n1", reported("x"), []string{refusedFar}},
	} {
		t.Run(name, func(t *testing.T) {
			u := statusUpdate{writers: writers{test.rules}}
			c, old := claimOf(t, test.edit), claimOf(t, nil)
			ctx := asking(t, test.who, test.node)
			compare(t, check.Run(func(to *check.Checker) {
				u.writers.mayBind(ctx, to, &c.Status, &old.Status)
				u.writers.mayReport(ctx, to, &c.Status, &old.Status)
			}), test.want...)
		})
	}
	kind := resourceClaim(rules{}, nil).(generic.Kind[*resourcev1.ResourceClaim])
	compare(t, checktest.UpdateErrors(asking(t, "a", ""), kind.StatusUpdate.Validate, claimOf(t, returned), claimOf(t, nil)), "status.allocation: Forbidden: changing status.allocation")
}

func TestChangedDrivers(t *testing.T) {
	device := func(driver, name, data string) resourcev1.AllocatedDeviceStatus {
		d := resourcev1.AllocatedDeviceStatus{Driver: driver, Device: name}
		if data != "" {
			d.NetworkData = &resourcev1.NetworkDeviceData{InterfaceName: data}
		}
		return d
	}
	old := []resourcev1.AllocatedDeviceStatus{device("same", "v", ""), device("changed", "v", "a"), device("removed", "v", "")}
	now := []resourcev1.AllocatedDeviceStatus{device("changed", "v", "b"), device("same", "v", ""), device("added", "v", "")}
	if got := changedDrivers(now, old); !got.HasAll("added", "changed", "removed") || got.Len() != 3 {
		t.Errorf("%v", got)
	}
}

func TestNodeOf(t *testing.T) {
	for selector, want := range map[string]string{
		`{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}`:                                                 "n1",
		`{matchFields: [{key: metadata.name, operator: In, values: [n1, n2]}]}`:                                             "",
		`{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}`:                                              "",
		`{matchFields: [{key: metadata.name, operator: In, values: [n1]}], matchExpressions: [{key: a, operator: Exists}]}`: "",
		`{matchExpressions: [{key: a, operator: Exists}]}`:                                                                  "",
	} {
		a := &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{*read[corev1.NodeSelectorTerm](t, selector)}}}
		if got := nodeOf(a); got != want {
			t.Errorf("%s: %q", selector, got)
		}
	}
	if got := nodeOf(&resourcev1.AllocationResult{}); got != "" {
		t.Errorf("without a selector: %q", got)
	}
}
