// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/nodeselector"
)

// ValidateTolerations checks the tolerations at path.
func ValidateTolerations(c *check.Checker, tolerations []v1.Toleration, path *field.Path) {
	validateTolerations(c, tolerations, path, declared)
}

// Whether a declarative validation covers the same field.
const (
	declared   = true
	undeclared = false
)

func validateTolerations(c *check.Checker, tolerations []v1.Toleration, path *field.Path, covered bool) {
	for i := range tolerations {
		validateToleration(c, &tolerations[i], path.Index(i), covered)
	}
}

func validateToleration(c *check.Checker, toleration *v1.Toleration, path *field.Path, covered bool) {
	if toleration.Key != "" {
		problems := metavalidation.ValidateLabelName(toleration.Key, path.Child("key"))
		if covered {
			problems = problems.MarkCoveredByDeclarative()
		}
		c.Add(problems...)
	}
	at := path.Child("operator")
	if toleration.Key == "" && toleration.Operator != v1.TolerationOpExists {
		c.Invalid(at, toleration.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
	}
	if toleration.TolerationSeconds != nil && toleration.Effect != v1.TaintEffectNoExecute {
		c.Invalid(path.Child("effect"), toleration.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
	}
	switch toleration.Operator {
	case v1.TolerationOpEqual, "":
		if problems := validation.IsValidLabelValue(toleration.Value); len(problems) > 0 {
			c.Invalid(at, toleration.Value, strings.Join(problems, ";"))
		}
	case v1.TolerationOpExists:
		if toleration.Value != "" {
			c.Invalid(at, toleration.Value, "value must be empty when `operator` is 'Exists'")
		}
	case v1.TolerationOpLt, v1.TolerationOpGt:
		// An alpha feature, off like every other.
		c.Add(field.NotSupported(at, toleration.Operator,
			[]v1.TolerationOperator{v1.TolerationOpEqual, v1.TolerationOpExists, v1.TolerationOpLt, v1.TolerationOpGt}))
	default:
		check.OneOf(c, at, toleration.Operator, v1.TolerationOpEqual, v1.TolerationOpExists)
	}
	if toleration.Effect != "" {
		check.OneOf(c, path.Child("effect"), toleration.Effect,
			v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
	}
}

func (c *specChecker) schedulingGates(path *field.Path) {
	seen := sets.Set[string]{}
	for i, gate := range c.spec.SchedulingGates {
		c.QualifiedName(path.Index(i), gate.Name)
		check.Unique(c, path.Index(i), seen, gate.Name)
	}
}

func (c *specChecker) schedulingGroup(path *field.Path) {
	group := c.spec.SchedulingGroup
	if group == nil {
		return
	}
	path = path.Child("podGroupName")
	if group.PodGroupName == nil {
		c.Invalid(path, group.PodGroupName, "must specify one of: `podGroupName`")
		return
	}
	c.DNSSubdomain(path, *group.PodGroupName)
}

const (
	requiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
)

// ValidateAffinity checks the affinity at path, which may be nil.
func ValidateAffinity(c *check.Checker, affinity *v1.Affinity, path *field.Path) {
	if affinity == nil {
		return
	}
	if node := affinity.NodeAffinity; node != nil {
		validateNodeAffinity(c, node, path.Child("nodeAffinity"))
	}
	if pods := affinity.PodAffinity; pods != nil {
		validatePodTerms(c, pods.RequiredDuringSchedulingIgnoredDuringExecution,
			pods.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if pods := affinity.PodAntiAffinity; pods != nil {
		validatePodTerms(c, pods.RequiredDuringSchedulingIgnoredDuringExecution,
			pods.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

func validateNodeAffinity(c *check.Checker, affinity *v1.NodeAffinity, path *field.Path) {
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		nodeselector.Validate(c, required, path.Child(requiredTerms))
	}
	for i, term := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child(preferredTerms).Index(i)
		validateWeight(c, term.Weight, at)
		// A value that no label has does no harm in a preference.
		nodeselector.ValidatePreference(c, &term.Preference, at.Child("preference"))
	}
}

func validateWeight(c *check.Checker, weight int32, path *field.Path) {
	if weight < 1 || weight > 100 {
		c.Invalid(path.Child("weight"), weight, "must be in the range 1-100")
	}
}

func validatePodTerms(c *check.Checker, required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm, path *field.Path) {
	for i := range required {
		validatePodTerm(c, &required[i], path.Child(requiredTerms).Index(i))
	}
	for i := range preferred {
		at := path.Child(preferredTerms).Index(i)
		validateWeight(c, preferred[i].Weight, at)
		validatePodTerm(c, &preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))
	}
}

func validatePodTerm(c *check.Checker, term *v1.PodAffinityTerm, path *field.Path) {
	options := metavalidation.LabelSelectorValidationOptions{}
	c.Add(metavalidation.ValidateLabelSelector(term.LabelSelector, options, path.Child("labelSelector"))...)
	c.Add(metavalidation.ValidateLabelSelector(term.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	for _, name := range term.Namespaces {
		c.Invalid(path.Child("namespace"), name, apivalidation.ValidateNamespaceName(name, false)...)
	}
	validateMatchLabelKeys(c, term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector, path)
	if term.TopologyKey == "" {
		c.Required(path.Child("topologyKey"), "can not be empty")
	}
	c.LabelName(path.Child("topologyKey"), term.TopologyKey)
}

// validateMatchLabelKeys checks labels whose values are taken from the incoming pod (KEP-3633). On
// creation they become requirements of the selector; any further requirement with the same key came
// from the client.
func validateMatchLabelKeys(c *check.Checker, match, mismatch []string, selector *metav1.LabelSelector, path *field.Path) {
	validateLabelKeys(c, match, selector, path.Child("matchLabelKeys"))
	validateLabelKeys(c, mismatch, selector, path.Child("mismatchLabelKeys"))
	index := map[string]int{}
	for i, key := range match {
		index[key] = i
	}
	if selector != nil {
		seen := sets.Set[string]{}
		for key := range selector.MatchLabels {
			seen.Insert(key)
		}
		for _, requirement := range selector.MatchExpressions {
			if i, found := index[requirement.Key]; found && seen.Has(requirement.Key) {
				c.Invalid(path.Index(i), requirement.Key, "exists in both matchLabelKeys and labelSelector")
			}
			seen.Insert(requirement.Key)
		}
	}
	excluded := sets.Set[string]{}
	for _, key := range mismatch {
		excluded.Insert(key)
	}
	for i, key := range match {
		if excluded.Has(key) {
			c.Invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func validateLabelKeys(c *check.Checker, keys []string, selector *metav1.LabelSelector, path *field.Path) {
	if len(keys) > 0 && selector == nil {
		c.Forbidden(path, "must not be specified when labelSelector is not set")
		return
	}
	for i, key := range keys {
		c.LabelName(path.Index(i), key)
	}
}

func validateTopologySpread(c *check.Checker, constraints []v1.TopologySpreadConstraint, path *field.Path) {
	for i := range constraints {
		constraint, at := &constraints[i], path.Index(i)
		c.Positive(at.Child("maxSkew"), int64(constraint.MaxSkew))
		if constraint.TopologyKey == "" {
			c.Required(at.Child("topologyKey"), "can not be empty")
		}
		check.OneOf(c, at.Child("whenUnsatisfiable"), constraint.WhenUnsatisfiable, v1.DoNotSchedule, v1.ScheduleAnyway)
		validateSpreadOnce(c, constraint, constraints[i+1:], at)
		validateMinDomains(c, constraint, at.Child("minDomains"))
		check.OptionalOneOf(c, at.Child("nodeAffinityPolicy"), constraint.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)
		check.OptionalOneOf(c, at.Child("nodeTaintsPolicy"), constraint.NodeTaintsPolicy, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)
		validateMatchLabelKeys(c, constraint.MatchLabelKeys, nil, constraint.LabelSelector, at)
		c.LabelSelector(at.Child("labelSelector"), constraint.LabelSelector)
	}
}

// validateSpreadOnce forbids two constraints with the same topology key and whenUnsatisfiable,
// which identify a constraint.
func validateSpreadOnce(c *check.Checker, constraint *v1.TopologySpreadConstraint, others []v1.TopologySpreadConstraint, path *field.Path) {
	for _, other := range others {
		if constraint.TopologyKey == other.TopologyKey && constraint.WhenUnsatisfiable == other.WhenUnsatisfiable {
			c.Duplicate(path.Child("{topologyKey, whenUnsatisfiable}"),
				"{"+constraint.TopologyKey+", "+string(constraint.WhenUnsatisfiable)+"}")
			return
		}
	}
}

func validateMinDomains(c *check.Checker, constraint *v1.TopologySpreadConstraint, path *field.Path) {
	if constraint.MinDomains == nil {
		return
	}
	c.Positive(path, int64(*constraint.MinDomains))
	if constraint.WhenUnsatisfiable != v1.DoNotSchedule {
		c.Add(field.Invalid(path, *constraint.MinDomains,
			"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+string(constraint.WhenUnsatisfiable)).WithOrigin("dependsOn"))
	}
}
