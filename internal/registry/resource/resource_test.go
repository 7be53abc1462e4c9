// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 999, time.UTC)

// read parses a manifest.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return obj
}

// compare requires exactly the wanted errors, by prefix and in any order.
func compare(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	same := slices.EqualFunc(got, want, strings.HasPrefix)
	if !same {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := Group(Dependencies{Clock: clocktesting.NewFakePassiveClock(noon)}).Register(scheme); err != nil {
		t.Fatal(err)
	}
	claim := read[resourcev1.ResourceClaim](t, `
spec: {devices: {requests: [
  {name: a, exactly: {tolerations: [{key: k}]}},
  {name: b, exactly: {allocationMode: All}},
  {name: c, firstAvailable: [{name: d, count: 3}]}]}}`)
	scheme.Default(claim)
	want := read[resourcev1.ResourceClaim](t, `
spec: {devices: {requests: [
  {name: a, exactly: {allocationMode: ExactCount, count: 1, tolerations: [{key: k, operator: Equal}]}},
  {name: b, exactly: {allocationMode: All}},
  {name: c, firstAvailable: [{name: d, allocationMode: ExactCount, count: 3}]}]}}`)
	if diff := cmp.Diff(want, claim); diff != "" {
		t.Error(diff)
	}

	given := metav1.NewTime(noon.Add(-time.Hour))
	slices := &resourcev1.ResourceSliceList{Items: []resourcev1.ResourceSlice{{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{
		{Taints: []resourcev1.DeviceTaint{{}, {TimeAdded: &given}}}}}}}}
	scheme.Default(slices)
	taints := slices.Items[0].Spec.Devices[0].Taints
	if !taints[0].TimeAdded.Equal(&metav1.Time{Time: noon.Truncate(time.Second)}) || !taints[1].TimeAdded.Equal(&given) {
		t.Errorf("taints were added %v", taints)
	}
	rules := &resourcev1.DeviceTaintRuleList{Items: make([]resourcev1.DeviceTaintRule, 1)}
	scheme.Default(rules)
	if added := rules.Items[0].Spec.Taint.TimeAdded; added == nil || added.Nanosecond() != 0 {
		t.Errorf("the rule's taint was added %v", added)
	}
}

func TestDeviceClass(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"nothing":  {`{}`, nil},
		"complete": {`{selectors: [{cel: {expression: "device.driver == 'a'"}}], config: [{opaque: {driver: A.example.com, parameters: {a: b}}}], extendedResourceName: example.com/gpu}`, nil},
		"selectors": {`{selectors: [{}, {cel: {expression: "device.driver"}}, {cel: {expression: "1 +"}}, {cel: {expression: ""}}]}`, []string{
			"spec.selectors[0].cel: Required value",
			`spec.selectors[1].cel.expression: Invalid value: "device.driver": must evaluate to bool`,
			`spec.selectors[2].cel.expression: Invalid value: "1 +": compilation failed`,
			`spec.selectors[3].cel.expression: Invalid value: "": compilation failed`}},
		"an expensive selector": {`{selectors: [{cel: {expression: "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, device.attributes.all(e, a == b)))))"}}]}`,
			[]string{"spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"}},
		"a long selector": {`{selectors: [{cel: {expression: "` + strings.Repeat(" ", 10241) + `"}}]}`, []string{"spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"}},
		"many":            {`{selectors: [` + strings.Repeat("{},", 33) + `]}`, []string{"spec.selectors: Too many: 33: must have at most 32 items"}},
		"config": {`{config: [{}, {opaque: {driver: ""}}, {opaque: {driver: a_b, parameters: [1]}}, {opaque: {driver: a, parameters: null}}]}`, []string{
			"spec.config[0].opaque: Required value",
			"spec.config[1].opaque.driver: Required value", "spec.config[1].opaque.parameters: Required value",
			`spec.config[2].opaque.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain`, `spec.config[2].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`,
			"spec.config[3].opaque.parameters: Required value"}},
		"an extended resource": {`{extendedResourceName: cpu}`, []string{`spec.extendedResourceName: Invalid value: "cpu"`}},
	} {
		t.Run(name, func(t *testing.T) {
			class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: *read[resourcev1.DeviceClassSpec](t, test.spec)}
			compare(t, checktest.Errors(t.Context(), DeviceClass.Validate, class), test.want...)
		})
	}
	compare(t, checktest.Errors(t.Context(), DeviceClass.Validate, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "A"}}), `metadata.name: Invalid value: "A"`)
}

// TestStoredSelectors checks that a stored selector is not validated again until it changes.
func TestStoredSelectors(t *testing.T) {
	old := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: *read[resourcev1.DeviceClassSpec](t, `
selectors: [{cel: {expression: "an old way"}}]
config: [{opaque: {driver: a, parameters: {a: "`+strings.Repeat("x", 10240)+`"}}}]`)}
	compare(t, checktest.UpdateErrors(t.Context(), DeviceClass.ValidateUpdate, old, old))
	changed := old.DeepCopy()
	changed.Spec.Selectors = append(changed.Spec.Selectors, old.Spec.Selectors...)
	changed.Spec.Config = append(changed.Spec.Config, old.Spec.Config...)
	compare(t, checktest.UpdateErrors(t.Context(), DeviceClass.ValidateUpdate, changed, old),
		"spec.selectors[0].cel.expression: Invalid value", "spec.selectors[1].cel.expression: Invalid value",
		"spec.config[0].opaque.parameters: Too long", "spec.config[1].opaque.parameters: Too long")
}

func TestDeviceTaintRule(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(noon)
	kind := deviceTaintRule(c).(generic.Kind[*taintRule])
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"complete": {`{deviceSelector: {driver: a, pool: b/c, device: d}, taint: {key: example.com/t, value: v, effect: None}}`, nil},
		"nothing":  {`{}`, []string{"spec.taint.key: Invalid value", "spec.taint.key: Invalid value", "spec.taint.effect: Required value"}},
		"bad names": {`{deviceSelector: {driver: "", pool: a//c, device: "1_"}, taint: {key: a b, value: a b, effect: Explode}}`, []string{
			"spec.deviceSelector.driver: Required value", `spec.deviceSelector.pool: Invalid value: "": a lowercase RFC 1123 subdomain`,
			`spec.deviceSelector.device: Invalid value: "1_": a lowercase RFC 1123 label`,
			`spec.taint.key: Invalid value: "a b": name part`, `spec.taint.value: Invalid value: "a b": a valid label`,
			`spec.taint.effect: Unsupported value: "Explode": supported values: "NoExecute", "NoSchedule", "None"`}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), kind.Validate, &taintRule{Spec: *read[resourcev1.DeviceTaintRuleSpec](t, test.spec)}), test.want...)
		})
	}
	old := &taintRule{Spec: *read[resourcev1.DeviceTaintRuleSpec](t, `{taint: {key: k, effect: None, timeAdded: "2025-01-01T00:00:00Z"}}`)}

	changed := old.DeepCopy()
	changed.Spec.Taint.Value = "v"
	kind.Prepare(t.Context(), changed, old)
	if !changed.Spec.Taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
		t.Error("another value is another taint")
	}
	changed.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	own := metav1.NewTime(noon.Add(-time.Hour))
	changed.Spec.Taint.TimeAdded = &own
	kind.Prepare(t.Context(), changed, old)
	if !changed.Spec.Taint.TimeAdded.Equal(&own) {
		t.Error("the client's time is not kept")
	}
	changed.Spec.Taint.TimeAdded = old.Spec.Taint.TimeAdded
	kind.Prepare(t.Context(), changed, old)
	if !changed.Spec.Taint.TimeAdded.Equal(&metav1.Time{Time: noon.Truncate(time.Second)}) {
		t.Errorf("the effect is from %v", changed.Spec.Taint.TimeAdded)
	}
	changed.Status.Conditions = make([]metav1.Condition, 9)
	errs := checktest.UpdateErrors(t.Context(), kind.StatusUpdate.Validate, changed, old)
	if !slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Type == field.ErrorTypeTooMany }) {
		t.Errorf("nine conditions: %v", errs)
	}
	if got := cells(kind.Columns, changed)[:3]; !slices.Equal(got, []any{"k", "v", "NoExecute"}) {
		t.Errorf("shown as %v", got)
	}
}

func cells[T generic.Object](columns []generic.Column[T], obj T) []any {
	var out []any
	for _, column := range columns {
		out = append(out, column.Cell(obj))
	}
	return out
}

func TestResourceClaim(t *testing.T) {
	const names = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	for name, test := range map[string]struct {
		devices string
		want    []string
	}{
		"nothing": {`{}`, nil},
		"complete": {`
requests:
- {name: a, exactly: {deviceClassName: c, allocationMode: ExactCount, count: 1}}
- {name: b, firstAvailable: [{name: x, deviceClassName: c, allocationMode: All}]}
constraints: [{requests: [a, b/x], matchAttribute: a.b/c}, {distinctAttribute: a/b}]
config: [{requests: [b], opaque: {driver: d, parameters: {}}}]`, nil},
		"requests": {`{requests: [{name: a}, {name: A, exactly: {}, firstAvailable: [{}]}, {name: a}]}`, []string{
			"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
			`spec.devices.requests[1].name: Invalid value: "A": a lowercase RFC 1123 label`,
			"spec.devices.requests[1]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
			"spec.devices.requests[2]: Required value", `spec.devices.requests[2]: Duplicate value: "a"`}},
		"a request": {`{requests: [{name: a, exactly: {deviceClassName: A, allocationMode: All, count: 1, tolerations: [{operator: Exists, value: v}, {operator: Equal, key: "-", value: "-"}, {effect: x}, {operator: In}]}}]}`, []string{
			`spec.devices.requests[0].exactly.deviceClassName: Invalid value: "A"`,
			"spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'",
			"spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`",
			`spec.devices.requests[0].exactly.tolerations[1].key: Invalid value: "-"`, `spec.devices.requests[0].exactly.tolerations[1].value: Invalid value: "-"`,
			`spec.devices.requests[0].exactly.tolerations[2].effect: Unsupported value: "x"`, `spec.devices.requests[0].exactly.tolerations[2].operator: Required value`,
			`spec.devices.requests[0].exactly.tolerations[3].operator: Unsupported value: "In": supported values: "Equal", "Exists"`}},
		"alternatives": {`{requests: [{name: a, firstAvailable: [{name: x, allocationMode: ExactCount}, {name: x, deviceClassName: c, allocationMode: Some}]}]}`, []string{
			"spec.devices.requests[0].firstAvailable[0].deviceClassName: Required value",
			"spec.devices.requests[0].firstAvailable[0].count: Invalid value: 0: must be greater than zero",
			`spec.devices.requests[0].firstAvailable[1].allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"`,
			`spec.devices.requests[0].firstAvailable[1]: Duplicate value: "x"`}},
		"references": {`
requests: [{name: a, firstAvailable: [{name: x, deviceClassName: c, allocationMode: All}]}]
constraints: [{requests: [a/y, b, a/x/z, a, a]}]
config: [{requests: [A]}]`, []string{
			`spec.devices.constraints[0].requests[0]: Invalid value: "a/y": ` + names, `spec.devices.constraints[0].requests[1]: Invalid value: "b": ` + names,
			`spec.devices.constraints[0].requests[2]: Invalid value: "a/x/z": ` + names, `spec.devices.constraints[0].requests[4]: Duplicate value: "a"`,
			`spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required`,
			`spec.devices.config[0].requests[0]: Invalid value: "A": a lowercase RFC 1123 label`, `spec.devices.config[0].requests[0]: Invalid value: "A": ` + names,
			`spec.devices.config[0].opaque: Required value`}},
		"attributes": {`{constraints: [{matchAttribute: a}, {distinctAttribute: /b}]}`, []string{
			`spec.devices.constraints[0].matchAttribute: Invalid value: "a": a fully qualified name must be a domain and a name separated by a slash`,
			`spec.devices.constraints[1].distinctAttribute: Invalid value: ""`}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, check.Run(func(c *check.Checker) {
				validateClaim(c, read[resourcev1.DeviceClaim](t, test.devices), specPath.Child("devices"))
			}), test.want...)
		})
	}
}

// TestImmutable checks that the specs of claims and templates are immutable.
func TestImmutable(t *testing.T) {
	claims := resourceClaim(nil, nil).(generic.Kind[*resourcev1.ResourceClaim])
	old := read[resourcev1.ResourceClaim](t, `{spec: {devices: {requests: [{name: a}]}}}`)
	changed := old.DeepCopy()
	compare(t, checktest.UpdateErrors(t.Context(), claims.ValidateUpdate, changed, old))
	changed.Spec.Devices.Requests[0].Name = "b"
	compare(t, checktest.UpdateErrors(t.Context(), claims.ValidateUpdate, changed, old), "spec: Invalid value")

	templates := resourceClaimTemplate(nil).(generic.Kind[*resourcev1.ResourceClaimTemplate])
	template := read[resourcev1.ResourceClaimTemplate](t, `{spec: {metadata: {labels: {a: b}}}}`)
	other := template.DeepCopy()
	compare(t, checktest.UpdateErrors(t.Context(), templates.ValidateUpdate, other, template))
	other.Spec.ObjectMeta = metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": " "}}
	compare(t, checktest.UpdateErrors(t.Context(), templates.ValidateUpdate, other, template),
		"spec.metadata.labels: Invalid value", "spec.metadata.name: Forbidden: cannot be set", "spec: Invalid value")
}

// TestAlpha checks that fields of disabled features are dropped.
func TestAlpha(t *testing.T) {
	claim := read[resourcev1.ResourceClaim](t, `
spec: {devices: {requests: [{name: a, exactly: {derivedAttributes: [{name: a/b}]}}, {name: b, firstAvailable: [{name: x, derivedAttributes: [{name: a/b}]}]}]}}
status: {allocation: {devices: {results: [{request: a, skipNodeOperations: ["*"]}]}}}`)
	dropAlphaClaim(&claim.Spec)
	dropAlphaStatus(&claim.Status)
	want := read[resourcev1.ResourceClaim](t, `
spec: {devices: {requests: [{name: a, exactly: {}}, {name: b, firstAvailable: [{name: x}]}]}}
status: {allocation: {devices: {results: [{request: a}]}}}`)
	if diff := cmp.Diff(want, claim); diff != "" {
		t.Error(diff)
	}
	old := read[resourcev1.ResourceSlice](t, `{metadata: {generation: 1}, spec: {devices: [{name: a, attributes: {a: {int: 1}}, consumesCounters: [{counterSet: c}]}]}}`)
	slice := read[resourcev1.ResourceSlice](t, `
metadata: {generation: 1}
spec:
  partitionTypeAttribute: a/b
  skipNodeOperations: ["*"]
  devices:
  - name: a
    attributes: {a: {int: 1, ints: [1], bools: [true], strings: [a], versions: [1.0.0]}}
    consumesCounters: [{counterSet: c, compatibilityGroups: [a]}]
    nodeAllocatableResources: {cpu: {}}`)
	ResourceSlice.Prepare(context.Background(), slice, old)
	if diff := cmp.Diff(old.Spec, slice.Spec); diff != "" || slice.Generation != 2 {
		t.Errorf("generation %d\n%s", slice.Generation, diff)
	}
}
