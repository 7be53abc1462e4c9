// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

func deviceClaim(class string, count int64) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}}}}}}
}

// forbidden checks that an error is Forbidden, for a reason.
func forbidden(t *testing.T, what string, err error, reason string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), reason) || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("%s: %v, want %q", what, err, reason)
	}
}

// TestClaimStatusWriters: permission to update a claim's status does not include allocation.
func TestClaimStatusWriters(t *testing.T) {
	status := rbacv1.PolicyRule{Verbs: []string{"update"}, APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceclaims/status"}}
	binding := status
	binding.Resources = []string{"resourceclaims/binding"}
	claims := server.client(t).ResourceV1().ResourceClaims(server.namespace(t))
	claim, err := claims.Create(t.Context(), deviceClaim("gpu", 1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d", Pool: "p", Device: "v"}}}}
	onlyStatus := grant(t, "status-writer", status).ResourceV1().ResourceClaims(claim.Namespace)
	_, err = onlyStatus.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	forbidden(t, "allocate", err, `requires resource="resourceclaims/binding", verb="update" permission`)

	allowed := grant(t, "allocator", binding, status).ResourceV1().ResourceClaims(claim.Namespace)
	if claim, err = allowed.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "p", Device: "v"}}
	_, err = allowed.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	forbidden(t, "report", err, `requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission`)
}

// TestAdminAccessNeedsALabel: admin access requires a label of the namespace.
func TestAdminAccessNeedsALabel(t *testing.T) {
	client, namespace := server.client(t), server.namespace(t)
	claim := deviceClaim("gpu", 1)
	claim.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claim.Spec}}
	_, err := client.ResourceV1().ResourceClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	forbidden(t, "claim", err, "admin access to devices requires")
	_, err = client.ResourceV1().ResourceClaimTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{})
	forbidden(t, "template", err, "admin access to devices requires")

	ns, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] = "true"
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ResourceV1().ResourceClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestDeviceQuota: devices are counted by class, and by the extended resource of the class.
func TestDeviceQuota(t *testing.T) {
	client, namespace := server.client(t), server.namespace(t)
	for _, name := range []string{"plain-counted", "extended-counted"} {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "extended-counted" {
			class.Spec.ExtendedResourceName = new("example.com/counted")
		}
		if _, err := client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"plain-counted.deviceclass.resource.k8s.io/devices": resource.MustParse("2"), "requests.example.com/counted": resource.MustParse("3")}}}
	quota, err := client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		quota.Status.Used[name] = resource.MustParse("0")
	}
	if _, err := client.CoreV1().ResourceQuotas(namespace).UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	claims := client.ResourceV1().ResourceClaims(namespace)
	create := func(class string, count int64) error {
		_, err := claims.Create(t.Context(), deviceClaim(class, count), metav1.CreateOptions{})
		return err
	}
	// The quota's informer may lag.
	err = within(5*time.Second, func() error {
		if err := create("plain-counted", 3); err == nil || !strings.Contains(err.Error(), "exceeded quota: q, requested: plain-counted.deviceclass.resource.k8s.io/devices=3, used: plain-counted.deviceclass.resource.k8s.io/devices=0, limited: plain-counted.deviceclass.resource.k8s.io/devices=2") {
			return fmt.Errorf("not refused as it should be: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for class, most := range map[string]int64{"plain-counted": 2, "extended-counted": 3, "uncounted": 9} {
		if err := create(class, most); err != nil {
			t.Errorf("%d of %s: %v", most, class, err)
		}
	}
	forbidden(t, "one more", create("extended-counted", 1), "exceeded quota: q, requested: requests.example.com/counted=1, used: requests.example.com/counted=3")
}

// TestNodesOfSlices: a node may write only its own ResourceSlices.
func TestNodesOfSlices(t *testing.T) {
	admin := server.client(t).ResourceV1().ResourceSlices()
	node := server.as(t, "system:node:devices-1", user.NodesGroup).ResourceV1().ResourceSlices()
	slice := func(name, node string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "d", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}}}
	}
	if _, err := admin.Create(t.Context(), slice("other", "devices-2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := node.Create(t.Context(), slice("stolen", "devices-2"), metav1.CreateOptions{})
	forbidden(t, "create another's", err, "can only create ResourceSlice with the same NodeName")
	if _, err := node.Create(t.Context(), slice("own", "devices-1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The watch cache may lag.
	err = within(5*time.Second, func() error {
		_, err := node.Get(t.Context(), "own", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	_, err = node.Get(t.Context(), "other", metav1.GetOptions{})
	forbidden(t, "get another's", err, "no relationship found between node 'devices-1' and this object")
	_, err = node.List(t.Context(), metav1.ListOptions{})
	forbidden(t, "list all", err, "can only list/watch/deletecollection resourceslices with nodeName field selector")
	list, err := node.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=devices-1"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "own" {
		t.Errorf("the node's own slices: %v, %v", list, err)
	}
	forbidden(t, "delete another's", node.Delete(t.Context(), "other", metav1.DeleteOptions{}), "no relationship found")
	if err := node.Delete(t.Context(), "own", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
