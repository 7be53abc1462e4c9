// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestTolerations(t *testing.T) {
	for name, test := range map[string]struct {
		toleration v1.Toleration
		want       []string
	}{
		"everything":             {toleration: v1.Toleration{Operator: v1.TolerationOpExists}},
		"with tolerationSeconds": {toleration: v1.Toleration{Key: "a", Value: "b", Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(1))}},
		"no key": {
			toleration: v1.Toleration{Operator: v1.TolerationOpEqual},
			want:       []string{"t[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\""},
		},
		"value with Exists": {
			toleration: v1.Toleration{Key: "a", Operator: v1.TolerationOpExists, Value: "b"},
			want:       []string{"t[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"},
		},
		"invalid values": {
			toleration: v1.Toleration{Key: "a b", Operator: "Like", Value: "c", Effect: "NoFun", TolerationSeconds: new(int64(1))},
			want: []string{
				`t[0].key: Invalid value: "a b": ` + qualified,
				"t[0].effect: Invalid value: \"NoFun\": effect must be 'NoExecute' when `tolerationSeconds` is set",
				`t[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists"`,
				`t[0].effect: Unsupported value: "NoFun": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
			},
		},
		"comparison (alpha)": {
			toleration: v1.Toleration{Key: "a", Operator: v1.TolerationOpGt, Value: "1"},
			want:       []string{`t[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := check.Run(func(c *check.Checker) { ValidateTolerations(c, []v1.Toleration{test.toleration}, field.NewPath("t")) })
			checktest.Diff(t, test.want, errs)
			// The generated validations check keys as well; the mark makes the strategy report them
			// once.
			for _, err := range errs {
				if covered := err.Field == "t[0].key"; err.CoveredByDeclarative != covered {
					t.Errorf("%s: covered by a declared validation: %v, want %v", err.Field, err.CoveredByDeclarative, covered)
				}
			}
		})
	}
}

func TestAffinity(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	errs := check.Run(func(c *check.Checker) {
		ValidateAffinity(c, &v1.Affinity{
			NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
				{Weight: 101, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorOpIn, Values: []string{"any value"}}}}},
			}},
			PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{LabelSelector: selector, TopologyKey: "zone", Namespaces: []string{"N"}, MatchLabelKeys: []string{"version"}, MismatchLabelKeys: []string{"version"}},
				{TopologyKey: "zone", MatchLabelKeys: []string{"version"}},
			}},
			PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{
				{Weight: 0, PodAffinityTerm: v1.PodAffinityTerm{
					LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"v": "1"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "v", Operator: "In", Values: []string{"1"}}}},
					MatchLabelKeys: []string{"v"},
				}},
			}},
		}, field.NewPath("a"))
	})
	const pods = "a.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	const anti = "a.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
	checktest.Diff(t, []string{
		`a.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100`,
		pods + `[0].namespace: Invalid value: "N": ` + label,
		pods + `[0].matchLabelKeys[0]: Invalid value: "version": exists in both matchLabelKeys and mismatchLabelKeys`,
		pods + `[1].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set`,
		anti + `.weight: Invalid value: 0: must be in the range 1-100`,
		anti + `.podAffinityTerm[0]: Invalid value: "v": exists in both matchLabelKeys and labelSelector`,
		anti + `.podAffinityTerm.topologyKey: Required value: can not be empty`,
		anti + `.podAffinityTerm.topologyKey: Invalid value: "": name part must be non-empty`,
		anti + `.podAffinityTerm.topologyKey: Invalid value: "": ` + qualified,
	}, errs)
	checktest.Diff(t, nil, check.Run(func(c *check.Checker) { ValidateAffinity(c, nil, nil) }))
}

func TestTopologySpread(t *testing.T) {
	valid := v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, MinDomains: new(int32(2))}
	const path = "spec.topologySpreadConstraints"
	createCases{
		"valid": {change: spec(func(spec *v1.PodSpec) {
			spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{valid}
		})},
		"twice": {
			change: spec(func(spec *v1.PodSpec) {
				spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{valid, valid}
			}),
			want: []string{path + `[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"`},
		},
		"bad": {
			change: spec(func(spec *v1.PodSpec) {
				spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
					WhenUnsatisfiable: "Cry", MinDomains: new(int32(0)),
					NodeAffinityPolicy: new(v1.NodeInclusionPolicy("Sometimes")),
					LabelSelector:      &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}},
				}}
			}),
			want: []string{
				path + `[0].maxSkew: Invalid value: 0: must be greater than zero`,
				path + `[0].topologyKey: Required value: can not be empty`,
				path + `[0].whenUnsatisfiable: Unsupported value: "Cry": supported values: "DoNotSchedule", "ScheduleAnyway"`,
				path + `[0].minDomains: Invalid value: 0: must be greater than zero`,
				path + `[0].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not Cry`,
				path + `[0].nodeAffinityPolicy: Unsupported value: "Sometimes": supported values: "Honor", "Ignore"`,
				path + `[0].labelSelector.matchLabels: Invalid value: "b c": ` + value,
			},
		},
	}.run(t)
}

func TestGates(t *testing.T) {
	createCases{
		"scheduling": {
			change: spec(func(spec *v1.PodSpec) {
				spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/a"}, {Name: "example.com/a"}, {Name: "a b"}}
			}),
			want: []string{
				`spec.schedulingGates[1]: Duplicate value: "example.com/a"`,
				`spec.schedulingGates[2]: Invalid value: "a b": ` + qualified,
			},
		},
		"no group":         {change: spec(func(spec *v1.PodSpec) { spec.SchedulingGroup = &v1.PodSchedulingGroup{} }), want: []string{"spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`"}},
		"group":            {change: spec(func(spec *v1.PodSpec) { spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("a.b")} })},
		"name of no group": {change: spec(func(spec *v1.PodSpec) { spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("A")} }), want: []string{`spec.schedulingGroup.podGroupName: Invalid value: "A": ` + subdomain}},
		"readiness": {
			change: spec(func(spec *v1.PodSpec) { spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a b"}} }),
			want:   []string{`spec.readinessGates[0].conditionType: Invalid value: "a b": ` + qualified},
		},
	}.run(t)
}

func TestNetwork(t *testing.T) {
	const ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
	createCases{
		"DNS": {change: spec(func(spec *v1.PodSpec) {
			spec.DNSPolicy = v1.DNSNone
			spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"10.0.0.1", "2001:db8::1"}, Searches: []string{".", "example.com.", "_srv.example.com"}}
		})},
		"DNSNone without config": {
			change: spec(func(spec *v1.PodSpec) { spec.DNSPolicy = v1.DNSNone }),
			want:   []string{"spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"},
		},
		"DNSNone without server": {
			change: spec(func(spec *v1.PodSpec) { spec.DNSPolicy, spec.DNSConfig = v1.DNSNone, &v1.PodDNSConfig{} }),
			want:   []string{"spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"},
		},
		"invalid DNS config": {
			change: spec(func(spec *v1.PodSpec) {
				spec.DNSConfig = &v1.PodDNSConfig{
					Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "four"},
					Searches:    []string{"A"},
					Options:     []v1.PodDNSConfigOption{{}},
				}
			}),
			want: []string{
				`spec.dnsConfig.nameservers: Invalid value: ["1.1.1.1","2.2.2.2","3.3.3.3","four"]: must not have more than 3 nameservers`,
				`spec.dnsConfig.nameservers[3]: Invalid value: "four": ` + ip,
				`spec.dnsConfig.searches[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')`,
				`spec.dnsConfig.options[0]: Required value: must not be empty`,
			},
		},
		"host aliases": {
			change: spec(func(spec *v1.PodSpec) {
				spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "B"}}, {IP: "01.2.3.4"}}
			}),
			want: []string{
				`spec.hostAliases[0].hostnames[1]: Invalid value: "B": ` + subdomain,
				`spec.hostAliases[1].ip: Invalid value: "01.2.3.4": must not have leading 0s`,
			},
		},
		"host names": {
			change: spec(func(spec *v1.PodSpec) {
				spec.Hostname, spec.Subdomain, spec.HostnameOverride = "a.b", "C", new("d")
				spec.SetHostnameAsFQDN, spec.HostNetwork = new(true), true
			}),
			want: []string{
				`spec.hostname: Invalid value: "a.b": must not contain dots`,
				`spec.subdomain: Invalid value: "C": ` + label,
				`spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true`,
				`spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true`,
			},
		},
	}.run(t)
}
