// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func compare(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestIPAddress(t *testing.T) {
	ctx := context.Background()
	with := func(ref *networkingv1.ParentReference) *networkingv1.IPAddress {
		return &networkingv1.IPAddress{Spec: networkingv1.IPAddressSpec{ParentRef: ref}}
	}
	web := &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "web"}
	compare(t, checktest.Errors(ctx, IPAddress.Validate, with(web)))
	compare(t, checktest.Errors(ctx, IPAddress.Validate, with(nil)), "spec.parentRef: Required value")
	compare(t, checktest.Errors(ctx, IPAddress.Validate, with(&networkingv1.ParentReference{Group: "a b", Resource: "a/b"})),
		`spec.parentRef.group: Invalid value: "a b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		`spec.parentRef.resource: Invalid value: "a/b": may not contain '/'`,
		"spec.parentRef.name: Required value")
	compare(t, checktest.UpdateErrors(ctx, IPAddress.ValidateUpdate, with(web), with(web)))
	other := *web
	other.Name = "api"
	compare(t, checktest.UpdateErrors(ctx, IPAddress.ValidateUpdate, with(&other), with(web)),
		`spec.parentRef: Invalid value: {"resource":"services","namespace":"default","name":"api"}: field is immutable`)

	for name, valid := range map[string]bool{
		"10.96.0.1": true, "2001:db8::1": true,
		"10.096.0.1": false, "2001:DB8::1": false, "2001:db8:0::1": false, "::ffff:10.96.0.1": false, "web": false,
	} {
		if problems := nameIsAddress(name, false); (len(problems) == 0) != valid {
			t.Errorf("%s: %q", name, problems)
		}
	}
	for want, ref := range map[string]*networkingv1.ParentReference{
		"<none>":                               nil,
		"services/default/web":                 web,
		"gateways.gateway.networking.k8s.io/a": {Group: "gateway.networking.k8s.io", Resource: "Gateways", Name: "a"},
	} {
		if got := parentText(with(ref)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestServiceCIDR(t *testing.T) {
	ctx := context.Background()
	with := func(cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	compare(t, checktest.Errors(ctx, ServiceCIDR.Validate, with("10.96.0.0/16", "fd00::/112")))
	compare(t, checktest.Errors(ctx, ServiceCIDR.Validate, with()), "spec.cidrs: Required value: at least one CIDR required")
	compare(t, checktest.Errors(ctx, ServiceCIDR.Validate, with("10.96.0.1/16")),
		`spec.cidrs[0]: Invalid value: "10.96.0.1/16": must not have bits set beyond the prefix length`)
	compare(t, checktest.Errors(ctx, ServiceCIDR.Validate, with("10.96.0.0/16", "10.97.0.0/16")),
		`spec.cidrs: Invalid value: ["10.96.0.0/16","10.97.0.0/16"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`)
	if errs := checktest.Errors(ctx, ServiceCIDR.Validate, with("10.96.0.0/16", "fd00::/112", "fd01::/112")); len(errs) != 1 || errs[0].Detail != "may only hold up to 2 values" {
		t.Errorf("three ranges: %v", errs)
	}

	compare(t, checktest.UpdateErrors(ctx, ServiceCIDR.ValidateUpdate, with("10.96.0.0/16"), with("10.96.0.0/16")))
	compare(t, checktest.UpdateErrors(ctx, ServiceCIDR.ValidateUpdate, with("10.96.0.0/16", "fd00::/112"), with("10.96.0.0/16")))
	compare(t, checktest.UpdateErrors(ctx, ServiceCIDR.ValidateUpdate, with("10.97.0.0/16"), with("10.96.0.0/16")),
		`spec.cidrs[0]: Invalid value: "10.97.0.0/16": field is immutable`)
	compare(t, checktest.UpdateErrors(ctx, ServiceCIDR.ValidateUpdate, with("10.96.0.0/16"), with("10.96.0.0/16", "fd00::/112")),
		`spec.cidrs: Invalid value: ["10.96.0.0/16"]: field is immutable`)

	// An update of the status cannot change the metadata.
	old, c := with("10.96.0.0/16"), with("10.96.0.0/16")
	c.Labels, c.Finalizers = map[string]string{"a": "b"}, []string{"example.com/x"}
	old.ObjectMeta = metav1.ObjectMeta{Name: "kubernetes"}
	ServiceCIDR.StatusUpdate.Prepare(ctx, c, old)
	if c.Labels != nil || c.Finalizers != nil {
		t.Errorf("%v, %v", c.Labels, c.Finalizers)
	}
}
