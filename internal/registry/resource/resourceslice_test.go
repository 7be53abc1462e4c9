// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func TestResourceSlice(t *testing.T) {
	const pool = `driver: d, pool: {name: p, resourceSliceCount: 1}, `
	const oneOf = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	const onePerDevice = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	many := func(n int, format string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, ", ")
	}
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"complete": {`{` + pool + `nodeName: n1, devices: [{name: v, attributes: {a: {int: 1}, a.b/c: {string: s}}, capacity: {m: {value: 1Gi}}}]}`, nil},
		"nothing": {`{pool: {generation: -1}}`, []string{
			"spec.driver: Required value", "spec.pool.name: Required value", "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
			"spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero", "spec: Required value: " + oneOf}},
		"all nodes": {`{` + pool + `nodeName: "", nodeSelector: {}, allNodes: true, perDeviceNodeSelection: false}`, []string{
			`spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string`,
			"spec.nodeSelector.nodeSelectorTerms: Required value", "spec.nodeSelector.nodeSelectorTerms: Invalid value: null: must have exactly one node selector term",
			"spec.perDeviceNodeSelection: Invalid value: false: must be either unset or set to true",
			"spec: Invalid value: \"{`nodeSelector`, `allNodes`}\": " + oneOf + ", but multiple fields are set"}},
		"nodes for each device": {`{` + pool + `perDeviceNodeSelection: true, devices: [{name: a}, {name: b, nodeName: ""}, {name: c, nodeName: N1, allNodes: true}, {name: d, allNodes: false, nodeSelector: {}}]}`, []string{
			"spec.devices[0]: Required value: " + onePerDevice,
			`spec.devices[1].nodeName: Invalid value: "": must not be empty`, "spec.devices[1]: Required value: " + onePerDevice,
			`spec.devices[2].nodeName: Invalid value: "N1"`, "spec.devices[2]: Invalid value: \"{`nodeName`, `allNodes`}\": " + onePerDevice,
			"spec.devices[3].nodeSelector.nodeSelectorTerms: Required value", "spec.devices[3].allNodes: Invalid value: false: must be either unset or set to true"}},
		"nodes of one device": {`{` + pool + `allNodes: true, devices: [{name: a, nodeName: n1}]}`, []string{
			"spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"}},
		"names":                     {`{` + pool + `allNodes: true, devices: [{name: a}, {name: a}, {name: A_}]}`, []string{`spec.devices[1]: Duplicate value: "a"`, `spec.devices[2].name: Invalid value: "A_"`}},
		"maximum number of devices": {`{` + pool + `allNodes: true, devices: [` + many(128, "{name: v%d}") + `]}`, nil},
		"too many":                  {`{` + pool + `allNodes: true, devices: [` + many(129, "{name: v%d}") + `]}`, []string{"spec.devices: Too many: 129: must have at most 128 items"}},
		"too many with taints": {`{` + pool + `allNodes: true, devices: [{name: x, taints: [{key: k, effect: None}]}, ` + many(64, "{name: v%d}") + `]}`,
			[]string{"spec.devices: Too many: 65: must have at most 64 items"}},
		"too many attributes and capacities": {`{` + pool + `allNodes: true, devices: [{name: x, attributes: {` + many(49, "a%d: {int: 1}") + `}}]}`, []string{
			"spec.devices[0]: Invalid value: 49: the total number of attributes and capacities must not exceed 32",
			"spec.devices[0]: Invalid value: 49: the total number of attribute values must not exceed 48"}},
		"attributes": {`{` + pool + `allNodes: true, devices: [{name: x, attributes: {a: {}, b: {int: 1, bool: true}, v: {version: "1.2"}, s: {string: ` + strings.Repeat("x", 65) + `}, "1": {int: 1}, /a: {int: 1}, a/: {int: 1}, D_/a: {int: 1}, ` + strings.Repeat("n", 33) + `: {int: 1}, a/b/c: {int: 1}}}]}`, []string{
			"spec.devices[0].attributes[a]: Invalid value: {}: exactly one value must be specified",
			`spec.devices[0].attributes[b]: Invalid value: {"int":1,"bool":true}: exactly one value must be specified`,
			`spec.devices[0].attributes[v].version: Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0`,
			"spec.devices[0].attributes[s].string: Too long: may not be more than 64 bytes",
			`spec.devices[0].attributes: Invalid value: "1": a valid C identifier`,
			`spec.devices[0].attributes: Invalid value: "": the domain must not be empty`, `spec.devices[0].attributes: Invalid value: "": the name must not be empty`,
			`spec.devices[0].attributes: Invalid value: "D_": a lowercase RFC 1123 subdomain`, "spec.devices[0].attributes: Too long: may not be more than 32 bytes"}},
		"counters and devices": {`{` + pool + `allNodes: true, devices: [], sharedCounters: [{name: A}, {counters: {B: {value: 1}}}, {name: A, counters: {` + many(33, "c%d: {value: 1}") + `}}]}`, []string{
			`spec: Invalid value: "": only one of`, `spec.sharedCounters[0].name: Invalid value: "A"`, "spec.sharedCounters[0].counters: Required value",
			"spec.sharedCounters[1].name: Required value", `spec.sharedCounters[1].counters: Invalid value: "B"`,
			`spec.sharedCounters[2].name: Invalid value: "A"`, "spec.sharedCounters[2].counters: Too many: 33: must have at most 32 items", `spec.sharedCounters[2]: Duplicate value: "A"`}},
		"consumption": {`{` + pool + `allNodes: true, devices: [{name: x, consumesCounters: [{}, {counterSet: a, counters: {a: {value: 1}}}]}, {name: y, consumesCounters: [{}, {}, {}]}]}`, []string{
			"spec.devices[0].consumesCounters[0].counterSet: Required value", "spec.devices[0].consumesCounters[0].counters: Required value",
			"spec.devices[1].consumesCounters: Too many: 3: must have at most 2 items"}},
		"taints": {`{` + pool + `allNodes: true, devices: [{name: x, taints: [{}]}]}`, []string{
			"spec.devices[0].taints[0].key: Invalid value", "spec.devices[0].taints[0].key: Invalid value", "spec.devices[0].taints[0].effect: Required value"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, check.Run(func(c *check.Checker) { validateSlice(c, read[resourcev1.ResourceSliceSpec](t, test.spec), nil) }), test.want...)
		})
	}
}

func TestResourceSliceUpdate(t *testing.T) {
	const before = `{driver: d, nodeName: n1, pool: {name: p, resourceSliceCount: 1}, devices: [{name: x, taints: [{}], capacity: {m: {value: 1, requestPolicy: {}}}}]}`
	old := read[resourcev1.ResourceSliceSpec](t, before)
	compare(t, check.Run(func(c *check.Checker) { validateSlice(c, old.DeepCopy(), old) }))
	compare(t, check.Run(func(c *check.Checker) {
		validateSlice(c, read[resourcev1.ResourceSliceSpec](t, `{driver: D, nodeName: m1, pool: {name: q, resourceSliceCount: 2}}`), old)
	}),
		"spec.driver: Invalid value", "spec.nodeName: Invalid value", "spec.pool.name: Invalid value")
	changed := old.DeepCopy()
	changed.Devices[0].Capacity["n"] = resourcev1.DeviceCapacity{}
	changed.Devices[0].Taints = append(changed.Devices[0].Taints, resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNone})
	compare(t, check.Run(func(c *check.Checker) { validateSlice(c, changed, old) }),
		"spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
		"spec.devices[0].taints[0].key: Invalid value", "spec.devices[0].taints[0].key: Invalid value", "spec.devices[0].taints[0].effect: Required value")
}

func TestCapacity(t *testing.T) {
	const path = "spec.devices[0].capacity[c].requestPolicy"
	for policy, want := range map[string][]string{
		`{}`:           nil,
		`{default: 1}`: nil,
		`{default: 1, validValues: [1], validRange: {min: 1}}`: {path + `: Forbidden: exactly one policy can be specified`},
		`{validValues: [1]}`:                                  {path + ".default: Required value: required when validValues is defined"},
		`{validRange: {min: 1}}`:                              {path + ".default: Required value: required when validRange is defined"},
		`{default: 2, validValues: [1500m, 1, 2]}`:            {path + `.validValues[1]: Invalid value: "1": values must be sorted in ascending order`, path + `.validValues[2]: Duplicate value: "2"`},
		`{default: 2, validValues: [500m, 1, 2]}`:             {path + `.validValues[1]: Duplicate value: "1"`},
		`{default: 3, validValues: [1, 1, 2]}`:                {path + `.validValues[1]: Duplicate value: "1"`, path + `.validValues: Invalid value: "3": default value is not valid according to the requestPolicy`},
		`{default: 2, validValues: [2, 1, 11]}`:               {path + `.validValues[1]: Invalid value: "1": values must be sorted in ascending order`, path + `.validValues[2]: Invalid value: "11": option is larger than capacity value: 10`},
		`{default: 1, validValues: [1,1,1,1,1,1,1,1,1,1,1]}`:  {path + ".validValues: Too many: 11: must have at most 10 items", path + ".validValues: Invalid value"},
		`{default: 3, validRange: {min: 1, max: 9, step: 2}}`: nil,
		`{default: 1500m, validRange: {min: 1, step: 500m}}`:  nil,
		`{default: 100u, validRange: {min: 3, step: 3}}`:      {path + `.validRange.default: Invalid value: "100u": default is less than min: 3`, path + `.validRange.step: Invalid value: "100u": value is not a multiple`},
		`{default: 1, validRange: {max: 1}}`:                  {path + ".validRange.min: Required value: required when validRange is defined"},
		`{default: 1, validRange: {min: 11}}`:                 {path + `.validRange.min: Invalid value: "11": min is larger than capacity value: 10`, path + `.validRange.default: Invalid value: "1": default is less than min: 11`},
		`{default: 4, validRange: {min: 3, max: 2}}`:          {path + `.validRange.max: Invalid value: "3": min is larger than max: 2`, path + `.validRange.default: Invalid value: "4": default is more than max: 2`},
		`{default: 1, validRange: {min: 1, max: 12}}`:         {path + `.validRange.max: Invalid value: "12": max is larger than capacity value: 10`},
		`{default: 4, validRange: {min: 1, max: 9, step: 3}}`: {path + `.validRange.step: Invalid value: "9": value is not a multiple of a given step (3) from (1)`},
		`{default: 1500m, validRange: {min: 1, step: 1}}`:     nil,
		`{default: 2500m, validRange: {min: 1, step: 1500m}}`: nil,
		`{default: 1, validRange: {min: 1, step: 1, max: 2}}`: nil,
		`{default: 1500m, validRange: {min: 1, step: 2}}`:     {path + `.validRange.step: Invalid value: "1500m": value is not a multiple of a given step (2) from (1)`},
		`{default: 1, validRange: {min: 1, step: 0}}`:         {path + `.validRange.step: Invalid value: "0": must be greater than zero`},
		`{default: 1, validRange: {min: 1, step: 10}}`:        {path + `.validRange.step: Invalid value: "10": one step 11 is larger than capacity value: 10`},
		`{default: 100u, validRange: {min: 0}}`:               nil,
		`{default: 0, validRange: {min: -1, step: 1}}`:        {path + `.validRange.min: Invalid value: "-1": must be greater than or equal to 0`},
		`{default: 1, validRange: {min: 1, step: 100E}}`: {path + `.validRange.step: Invalid value: "100E": one step`,
			path + `.validRange.step: Invalid value: "100E": must not be larger than 9223372036854775807`},
	} {
		spec := `{driver: d, allNodes: true, pool: {name: p, resourceSliceCount: 1}, devices: [{name: x, allowMultipleAllocations: true, capacity: {c: {value: "10", requestPolicy: ` + policy + `}}}]}`
		t.Run(policy, func(t *testing.T) {
			compare(t, check.Run(func(c *check.Checker) { validateSlice(c, read[resourcev1.ResourceSliceSpec](t, spec), nil) }), want...)
		})
	}
}

func TestSemver(t *testing.T) {
	for version, want := range map[string]bool{
		"1.2.3": true, "0.0.0": true, "1.0.0-alpha.1": true, "1.0.0-0a": true, "1.0.0+build.007": true, "1.0.0-x-y.z+b-1": true,
		"1": false, "1.2": false, "01.2.3": false, "1.2.3-": false, "1.2.3-01": false, "1.2.3+": false, "v1.2.3": false, "1.2.3 ": false,
	} {
		if got := semver.MatchString(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}

func TestSliceColumns(t *testing.T) {
	s := read[resourcev1.ResourceSlice](t, `{spec: {driver: D, nodeName: n1, pool: {name: p}}}`)
	if got := cells(ResourceSlice.Columns, s); !slices.Equal(got, []any{"n1", "D", "p"}) {
		t.Errorf("shown as %v", got)
	}
	if warnings := warnOfDriverName(t.Context(), s, nil); len(warnings) != 1 {
		t.Errorf("warnings: %v", warnings)
	}
	s.Spec.Driver = "d"
	if warnings := warnOfDriverName(t.Context(), s, nil); len(warnings) != 0 {
		t.Errorf("warnings: %v", warnings)
	}
	for name, want := range map[string]string{"spec.nodeName": "n1", "spec.driver": "d", "spec.pool.name": "p"} {
		if got := ResourceSlice.Fields[name](s); got != want {
			t.Errorf("%s = %q", name, got)
		}
	}
}

func TestShortened(t *testing.T) {
	if got := shortened("abcdefghijklmnopqrstuvwxyz", 16); got != "abcdefg...uvwxyz" {
		t.Error(got)
	}
	if got := shortened("abc", 16); got != "abc" {
		t.Error(got)
	}
}
