// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// updatable lists the mutable fields of a pod's spec for error messages. While a pod is gated, its
// node selection may also become narrower (KEP-3838).
const updatable = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// ValidatePodUpdate checks an update of the pod itself.
func ValidatePodUpdate(c *check.Checker, pod, old *v1.Pod) {
	validateChangedPod(c, pod, old)
	validateSpecUpdate(c, &pod.Spec, &old.Spec, field.NewPath("spec"))
}

func validateChangedPod(c *check.Checker, pod, old *v1.Pod) {
	validateMetadataUpdate(c, &pod.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	validatePod(c, pod)
	validateAnnotationUpdate(c, pod.Annotations, old.Annotations)
}

func validateSpecUpdate(c *check.Checker, spec, old *v1.PodSpec, path *field.Path) {
	for _, list := range []struct {
		name     string
		now, old int
	}{
		{"containers", len(spec.Containers), len(old.Containers)},
		{"initContainers", len(spec.InitContainers), len(old.InitContainers)},
	} {
		if list.now != list.old {
			c.Forbidden(path.Child(list.name), "pod updates may not add or remove containers")
			return
		}
	}
	if !validateDeadlineUpdate(c, spec.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds")) {
		return
	}
	validateTolerationUpdate(c, spec.Tolerations, old.Tolerations, path.Child("tolerations"))
	validateGateUpdate(c, spec.SchedulingGates, old.SchedulingGates, path.Child("schedulingGates"))

	// Undo the allowed changes; any remaining difference is an error.
	rest := spec.DeepCopy()
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	rest.Tolerations = old.Tolerations
	rest.SchedulingGates = old.SchedulingGates
	if isNegative(old.TerminationGracePeriodSeconds) && isOne(rest.TerminationGracePeriodSeconds) {
		rest.TerminationGracePeriodSeconds = old.TerminationGracePeriodSeconds
	}
	if len(old.SchedulingGates) > 0 {
		validateGatedUpdate(c, rest, old, path)
	}
	if !equality.Semantic.DeepEqual(rest, old) {
		c.Forbidden(path, fmt.Sprintf("pod updates may not change fields other than %s\n%v", updatable, diff.Diff(*old, *rest)))
	}
}

func isNegative(seconds *int64) bool { return seconds != nil && *seconds < 0 }
func isOne(seconds *int64) bool      { return seconds != nil && *seconds == 1 }

// validateDeadlineUpdate allows a deadline to be set and shortened. It reports whether the rest of
// the spec should be checked.
func validateDeadlineUpdate(c *check.Checker, seconds, old *int64, path *field.Path) bool {
	switch {
	case seconds == nil && old != nil:
		c.Invalid(path, seconds, "must not update from a positive integer to nil value")
	case seconds == nil:
	case *seconds < 0 || *seconds > math.MaxInt32:
		c.Invalid(path, *seconds, validation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case old != nil && *old < *seconds:
		c.Invalid(path, *seconds, "must be less than or equal to previous value")
		return false
	}
	return true
}

// validateTolerationUpdate allows new tolerations and changes of tolerationSeconds.
func validateTolerationUpdate(c *check.Checker, tolerations, old []v1.Toleration, path *field.Path) {
	for _, o := range old {
		kept := slices.ContainsFunc(tolerations, func(t v1.Toleration) bool {
			return t.Key == o.Key && t.Operator == o.Operator && t.Value == o.Value && t.Effect == o.Effect
		})
		if !kept {
			c.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

// validateGateUpdate allows gates to be removed. It reports a new gate once, at its last index.
func validateGateUpdate(c *check.Checker, gates, old []v1.PodSchedulingGate, path *field.Path) {
	for i, gate := range gates {
		if !slices.Contains(old, gate) && !slices.Contains(gates[i+1:], gate) {
			c.Forbidden(path.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name))
		}
	}
}

// validateGatedUpdate checks changes of node selection while the pod is gated, and undoes them in
// rest.
func validateGatedUpdate(c *check.Checker, rest, old *v1.PodSpec, path *field.Path) {
	for key, value := range old.NodeSelector {
		if now, found := rest.NodeSelector[key]; !found || now != value {
			c.Invalid(path.Child("nodeSelector"), rest.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	rest.NodeSelector = old.NodeSelector

	affinity, oldAffinity := nodeAffinityOf(rest), nodeAffinityOf(old)
	if equality.Semantic.DeepEqual(affinity, oldAffinity) {
		return
	}
	validateNodeAffinityUpdate(c, affinity, oldAffinity, path.Child("affinity", "nodeAffinity", requiredTerms, "nodeSelectorTerms"))
	if rest.Affinity == nil {
		rest.Affinity = &v1.Affinity{}
	}
	rest.Affinity.NodeAffinity = oldAffinity
	if old.Affinity == nil && *rest.Affinity == (v1.Affinity{}) {
		rest.Affinity = nil
	}
}

func nodeAffinityOf(spec *v1.PodSpec) *v1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

// validateNodeAffinityUpdate allows each term, which is an alternative, to become narrower, but not
// more or fewer terms. Preferences may change freely.
func validateNodeAffinityUpdate(c *check.Checker, affinity, old *v1.NodeAffinity, path *field.Path) {
	terms, oldTerms := requiredTermsOf(affinity), requiredTermsOf(old)
	if len(oldTerms) == 0 {
		return
	}
	if len(terms) != len(oldTerms) {
		c.Invalid(path, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i := range terms {
		if !isNarrower(&terms[i], &oldTerms[i]) {
			c.Invalid(path.Index(i), terms[i], "only additions are allowed (no mutations or deletions)")
		}
	}
}

func requiredTermsOf(affinity *v1.NodeAffinity) []v1.NodeSelectorTerm {
	if affinity == nil || affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// isNarrower reports whether a term differs from old only by further requirements. An empty term
// matches no node, so requirements would widen it.
func isNarrower(term, old *v1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions)+len(old.MatchFields) == 0 {
		return len(term.MatchExpressions)+len(term.MatchFields) == 0
	}
	return startsWith(term.MatchExpressions, old.MatchExpressions) && startsWith(term.MatchFields, old.MatchFields)
}

func startsWith(requirements, old []v1.NodeSelectorRequirement) bool {
	return len(requirements) >= len(old) && equality.Semantic.DeepEqual(requirements[:len(old)], old)
}

// validateAnnotationUpdate rejects changes of annotations that the node agent reads only once.
func validateAnnotationUpdate(c *check.Checker, annotations, old map[string]string) {
	path := field.NewPath("metadata", "annotations")
	fixed := func(key string) string {
		switch {
		case strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			return "AppArmor annotations"
		case key == v1.MirrorPodAnnotationKey:
			return "mirror pod annotation"
		}
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if value, found := annotations[key]; fixed(key) != "" && (!found || value != old[key]) {
			c.Forbidden(path.Key(key), "may not remove or update "+fixed(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if _, found := old[key]; fixed(key) != "" && !found {
			c.Forbidden(path.Key(key), "may not add "+fixed(key))
		}
	}
}

// ValidatePodEphemeralContainersUpdate checks an update that adds ephemeral containers. Existing
// ones are immutable.
func ValidatePodEphemeralContainersUpdate(c *check.Checker, pod, old *v1.Pod) {
	if isMirror(&old.ObjectMeta) {
		c.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")
		return
	}
	path := field.NewPath("spec", "ephemeralContainers")
	validateChangedPod(c, pod, old)
	now := map[string]*v1.EphemeralContainer{}
	for i := range pod.Spec.EphemeralContainers {
		now[pod.Spec.EphemeralContainers[i].Name] = &pod.Spec.EphemeralContainers[i]
	}
	for _, container := range old.Spec.EphemeralContainers {
		switch kept := now[container.Name]; {
		case kept == nil:
			c.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", container.Name))
		case !equality.Semantic.DeepEqual(container, *kept):
			c.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", container.Name, diff.Diff(container, *kept)))
		}
	}
}
