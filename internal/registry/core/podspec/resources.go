// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
)

// ValidateResourceRequirements checks the resources of a container. claims are the names in
// spec.resourceClaims.
func ValidateResourceRequirements(c *check.Checker, requirements *v1.ResourceRequirements, claims sets.Set[string], path *field.Path) {
	validateRequirements(c, requirements, resourcename.ValidateForContainer, path)
	validateClaimRefs(c, requirements.Claims, claims, path.Child("claims"))
}

// nameRule checks whether a resource of that name may be requested.
type nameRule func(c *check.Checker, name v1.ResourceName, path *field.Path)

func validateRequirements(c *check.Checker, requirements *v1.ResourceRequirements, rule nameRule, path *field.Path) {
	validateAmounts(c, requirements.Limits, rule, path.Child("limits"))
	validateAmounts(c, requirements.Requests, rule, path.Child("requests"))
	for _, name := range names(requirements.Requests) {
		validateWithinLimit(c, name, requirements, path)
	}
	all := append(names(requirements.Limits), names(requirements.Requests)...)
	if slices.ContainsFunc(all, resourcename.IsHugePages) && !slices.ContainsFunc(all, resourcename.IsCPUOrMemory) {
		c.Forbidden(path, "HugePages require cpu or memory")
	}
}

func validateAmounts(c *check.Checker, list v1.ResourceList, rule nameRule, path *field.Path) {
	for _, name := range names(list) {
		at, quantity := path.Key(string(name)), list[name]
		rule(c, name, at)
		resourcename.ValidateQuantity(c, name, quantity, at)
		if resourcename.IsHugePages(name) && !isMultipleOfPage(name, quantity) {
			c.Invalid(at, quantity.String(), fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name))
		}
	}
}

// validateWithinLimit requires that a request is at most the limit, and equal to the limit if the
// resource cannot be overcommitted.
func validateWithinLimit(c *check.Checker, name v1.ResourceName, requirements *v1.ResourceRequirements, path *field.Path) {
	request := requirements.Requests[name]
	limit, limited := requirements.Limits[name]
	overcommits := resourcename.Overcommits(name)
	switch {
	case !limited && !overcommits:
		c.Required(path.Child("limits"), "Limit must be set for non overcommitable resources")
	case !limited:
	case !overcommits && request.Cmp(limit) != 0:
		c.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
	case request.Cmp(limit) > 0:
		c.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
	}
}

// names returns the names in order, so that errors have a stable order.
func names(list v1.ResourceList) []v1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

func isMultipleOfPage(name v1.ResourceName, quantity resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return quantity.Value()%size.Value() == 0
}

// validateClaimRefs checks the claims that a container uses: a whole claim, or a request of one.
func validateClaimRefs(c *check.Checker, refs []v1.ResourceClaim, claims sets.Set[string], path *field.Path) {
	used := sets.Set[string]{}
	for i, ref := range refs {
		at := path.Index(i)
		if ref.Name == "" {
			c.Required(at, "")
			continue
		}
		validateClaimUse(c, ref, used, at)
		if !claims.Has(ref.Name) {
			missing := field.NotFound(at, ref.Name)
			missing.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			if len(claims) > 0 {
				missing.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(sets.List(claims), ", ")
			}
			c.Add(missing)
		}
	}
}

// validateClaimUse reports a claim or request that is used twice. A request also counts as a part
// of the whole claim.
func validateClaimUse(c *check.Checker, ref v1.ResourceClaim, used sets.Set[string], path *field.Path) {
	if used.Has(ref.Name) {
		c.Duplicate(path, ref.Name)
		return
	}
	key := ref.Name
	if ref.Request != "" {
		c.DNSLabel(path.Child("request"), ref.Request)
		key += "/" + ref.Request
	}
	if used.Has(key) {
		c.Duplicate(path, key)
	} else if ref.Request == "" {
		for other := range used {
			if strings.HasPrefix(other, ref.Name+"/") {
				c.Duplicate(path, ref.Name)
			}
		}
	}
	used.Insert(key)
}

// podResources checks spec.resources, the resources of the whole pod (KEP-2837).
func (c *specChecker) podResources(path *field.Path) {
	resources, at := c.spec.Resources, path.Child("resources")
	if resources == nil {
		return
	}
	if isWindows(c.spec) {
		c.Forbidden(at, "may not be set for a windows pod")
		return
	}
	if resources.Claims != nil {
		c.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level")
	}
	validateRequirements(c.Checker, resources, validatePodResourceName, at)
	validateClaimRefs(c.Checker, resources.Claims, c.claims, at.Child("claims"))
	c.containersFit(resources, at)
}

func validatePodResourceName(c *check.Checker, name v1.ResourceName, path *field.Path) {
	if resourcename.Validate(c, name, path) && !resourcehelper.IsSupportedPodLevelResource(name) {
		c.Add(field.NotSupported(path, name, sets.List(resourcehelper.SupportedPodLevelResources())))
	}
}

// containersFit requires that the requests of all containers fit into those of the pod, and that no
// container has a higher limit than the pod.
func (c *specChecker) containersFit(resources *v1.ResourceRequirements, path *field.Path) {
	pod := &v1.Pod{Spec: *c.spec}
	together := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range names(together) {
		sum := together[name]
		if request, found := resources.Requests[name]; found && sum.Cmp(request) > 0 {
			c.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String()))
		}
	}
	// Huge pages are not overcommitted, so their limits must fit together too.
	together = resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range names(together) {
		sum := together[name]
		if limit, found := resources.Limits[name]; found && resourcename.IsHugePages(name) && sum.Cmp(limit) > 0 {
			c.Invalid(path.Child("limits").Key(string(name)), limit.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String()))
		}
	}
	for i, container := range c.spec.Containers {
		for _, name := range names(container.Resources.Limits) {
			own := container.Resources.Limits[name]
			if limit, found := resources.Limits[name]; found && own.Cmp(limit) > 0 {
				c.Invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), own.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", limit.String()))
			}
		}
	}
}
