// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"context"
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// FlowSchema assigns requests to a priority level.
var FlowSchema = generic.Kind[*flowcontrolv1.FlowSchema]{
	Name: "FlowSchema", Plural: "flowschemas", ClusterScoped: true,
	Metadata: generic.Metadata{ValidateAsNew: true},
	New:      func() *flowcontrolv1.FlowSchema { return &flowcontrolv1.FlowSchema{} },
	NewList:  func() runtime.Object { return &flowcontrolv1.FlowSchemaList{} },
	Spec:     func(f *flowcontrolv1.FlowSchema) any { return &f.Spec },
	Status:   func(f *flowcontrolv1.FlowSchema) any { return &f.Status },
	StatusUpdate: generic.Update[*flowcontrolv1.FlowSchema]{
		Prepare: func(_ context.Context, f, old *flowcontrolv1.FlowSchema) {
			onlyStatus(&f.ObjectMeta, &old.ObjectMeta)
		},
		Resets: []string{"metadata"},
		Validate: func(_ context.Context, c *check.Checker, f, _ *flowcontrolv1.FlowSchema) {
			validateConditions(c, f.Status.Conditions, flowCondition)
		},
	},
	Validate: validateFlowSchema,
	Columns: []generic.Column[*flowcontrolv1.FlowSchema]{
		{Name: "PriorityLevel", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"],
			Cell: func(f *flowcontrolv1.FlowSchema) any { return f.Spec.PriorityLevelConfiguration.Name }},
		{Name: "MatchingPrecedence", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["matchingPrecedence"],
			Cell: func(f *flowcontrolv1.FlowSchema) any { return f.Spec.MatchingPrecedence }},
		{Name: "DistinguisherMethod", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["distinguisherMethod"],
			Cell: func(f *flowcontrolv1.FlowSchema) any {
				if f.Spec.DistinguisherMethod == nil {
					return generic.OrNone("")
				}
				return string(f.Spec.DistinguisherMethod.Type)
			}},
	},
	Table: generic.Table[*flowcontrolv1.FlowSchema]{AfterAge: []generic.Column[*flowcontrolv1.FlowSchema]{
		{Name: "MissingPL", Description: "references a broken or non-existent PriorityLevelConfiguration", Cell: dangling},
	}},
}

// onlyStatus restores all metadata except managedFields.
func onlyStatus(meta, old *metav1.ObjectMeta) {
	managed := meta.ManagedFields
	*meta = *old
	meta.ManagedFields = managed
}

func flowCondition(c flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) }

func dangling(f *flowcontrolv1.FlowSchema) any {
	for _, condition := range f.Status.Conditions {
		if condition.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(condition.Status)
		}
	}
	return "?"
}

// The values of enumerations, sorted as messages list them.
var (
	distinguishers = []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}
	subjectKinds   = []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser}
	verbs          = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
)

func validateFlowSchema(_ context.Context, c *check.Checker, f *flowcontrolv1.FlowSchema) {
	spec, path := &f.Spec, field.NewPath("spec")
	validatePrecedence(c, f.Name, spec.MatchingPrecedence, path.Child("matchingPrecedence"))
	if d := spec.DistinguisherMethod; d != nil && !slices.Contains(distinguishers, d.Type) {
		// Upstream's error shows its internal type, whose fields have no JSON names.
		shown := struct {
			Type flowcontrolv1.FlowDistinguisherMethodType
		}{d.Type}
		c.Add(field.NotSupported(path.Child("distinguisherMethod", "type"), shown, distinguishers))
	}
	level := path.Child("priorityLevelConfiguration", "name")
	if name := spec.PriorityLevelConfiguration.Name; name == "" {
		c.Required(level, "must reference a priority level")
	} else {
		c.DNSSubdomain(level, name)
	}
	for i := range spec.Rules {
		validateRule(c, &spec.Rules[i], path.Child("rules").Index(i))
	}
	if mandatory := mandatoryFlowSchema(f.Name); mandatory != nil && !equality.Semantic.DeepEqual(f.Spec, mandatory.Spec) {
		c.Invalid(path, f.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name))
	}
	validateConditions(c, f.Status.Conditions, flowCondition)
}

func validatePrecedence(c *check.Checker, name string, precedence int32, path *field.Path) {
	switch {
	case precedence <= 0:
		c.Invalid(path, precedence, "must be a positive value")
	case precedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		c.Invalid(path, precedence, fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))
	case precedence == 1 && name != flowcontrolv1.FlowSchemaNameExempt:
		c.Invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
}

func validateRule(c *check.Checker, r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) {
	if len(r.Subjects) == 0 {
		c.Required(path.Child("subjects"), "subjects must contain at least one value")
	}
	for i := range r.Subjects {
		validateSubject(c, &r.Subjects[i], path.Child("subjects").Index(i))
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		c.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
	}
	for i := range r.ResourceRules {
		validateResourceRule(c, &r.ResourceRules[i], path.Child("resourceRules").Index(i))
	}
	for i := range r.NonResourceRules {
		validateURLRule(c, &r.NonResourceRules[i], path.Child("nonResourceRules").Index(i))
	}
}

// validateSubject requires the field of the subject's kind, and forbids the others.
func validateSubject(c *check.Checker, s *flowcontrolv1.Subject, path *field.Path) {
	switch s.Kind {
	case flowcontrolv1.SubjectKindServiceAccount:
		validateAccount(c, s.ServiceAccount, path.Child("serviceAccount"))
	case flowcontrolv1.SubjectKindUser:
		validateNamed(c, s.User != nil, func() string { return s.User.Name }, path.Child("user"), s.Kind)
	case flowcontrolv1.SubjectKindGroup:
		validateNamed(c, s.Group != nil, func() string { return s.Group.Name }, path.Child("group"), s.Kind)
	default:
		check.OneOf(c, path.Child("kind"), s.Kind, subjectKinds...)
		return
	}
	for _, member := range []struct {
		name string
		kind flowcontrolv1.SubjectKind
		set  bool
	}{
		{"serviceAccount", flowcontrolv1.SubjectKindServiceAccount, s.ServiceAccount != nil},
		{"user", flowcontrolv1.SubjectKindUser, s.User != nil},
		{"group", flowcontrolv1.SubjectKindGroup, s.Group != nil},
	} {
		if member.set && member.kind != s.Kind {
			c.Forbidden(path.Child(member.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", member.name, member.kind))
		}
	}
}

func validateNamed(c *check.Checker, set bool, name func() string, path *field.Path, kind flowcontrolv1.SubjectKind) {
	switch {
	case !set:
		c.Required(path, fmt.Sprintf("%s is required when subject kind is '%s'", strings.ToLower(string(kind)), kind))
	case name() == "":
		c.Required(path.Child("name"), "")
	}
}

func validateAccount(c *check.Checker, s *flowcontrolv1.ServiceAccountSubject, path *field.Path) {
	if s == nil {
		c.Required(path, "serviceAccount is required when subject kind is 'ServiceAccount'")
		return
	}
	switch s.Name {
	case "":
		c.Required(path.Child("name"), "")
	case flowcontrolv1.NameAll:
	default:
		c.Invalid(path.Child("name"), s.Name, apivalidation.ValidateServiceAccountName(s.Name, false)...)
	}
	if s.Namespace == "" {
		c.Required(path.Child("namespace"), "must specify namespace for service account")
		return
	}
	c.Invalid(path.Child("namespace"), s.Namespace, apivalidation.ValidateNamespaceName(s.Namespace, false)...)
}

const wildcard = "*"

// list is one list of a rule. A wildcard must be its only item.
type list struct {
	values []string
	path   *field.Path
	// missing is the error of an empty list, others that of a list with a wildcard and other items.
	missing, others string
}

func (l list) hasWildcard() bool { return slices.Contains(l.values, wildcard) }

func (l list) validate(c *check.Checker) {
	switch {
	case len(l.values) == 0:
		c.Required(l.path, l.missing)
	case len(l.values) > 1 && l.hasWildcard():
		c.Invalid(l.path, l.values, "if '*' is present, must not specify other "+l.others)
	}
}

func validateVerbs(c *check.Checker, given []string, path *field.Path) {
	l := list{given, path, "verbs must contain at least one value", "verbs"}
	isUnknown := func(verb string) bool { return !slices.Contains(verbs, verb) }
	if !l.hasWildcard() && slices.ContainsFunc(given, isUnknown) {
		c.Add(field.NotSupported(path, given, verbs))
		return
	}
	l.validate(c)
}

func validateResourceRule(c *check.Checker, r *flowcontrolv1.ResourcePolicyRule, path *field.Path) {
	validateVerbs(c, r.Verbs, path.Child("verbs"))
	list{r.APIGroups, path.Child("apiGroups"), "resource rules must supply at least one api group", "api groups"}.validate(c)
	list{r.Resources, path.Child("resources"), "resource rules must supply at least one resource", "resources"}.validate(c)
	namespaces := list{r.Namespaces, path.Child("namespaces"), "resource rules that are not cluster scoped must supply at least one namespace", "namespaces"}
	if len(r.Namespaces) == 0 && r.ClusterScope {
		return
	}
	namespaces.validate(c)
	if namespaces.hasWildcard() {
		return
	}
	for i, name := range r.Namespaces {
		for _, problem := range apivalidation.ValidateNamespaceName(name, false) {
			c.Invalid(namespaces.path.Index(i), name, "each member of this list must be '*' or a DNS-1123 label; "+problem)
		}
	}
}

func validateURLRule(c *check.Checker, r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) {
	validateVerbs(c, r.Verbs, path.Child("verbs"))
	urls := list{r.NonResourceURLs, path.Child("nonResourceURLs"), "nonResourceURLs must contain at least one value", "non-resource URLs"}
	urls.validate(c)
	if urls.hasWildcard() {
		return
	}
	for i, url := range r.NonResourceURLs {
		if problem := urlProblem(url); problem != "" {
			c.Invalid(urls.path.Index(i), url, problem)
		}
	}
}

// urlProblem returns the problem of a path, which may end with a wildcard.
func urlProblem(url string) string {
	stars := strings.Count(url, wildcard)
	switch {
	case url == "":
		return "must not be empty"
	case !strings.HasPrefix(url, "/"):
		return "must start with slash"
	case strings.Contains(url, " "):
		return "must not contain white-space"
	case strings.Contains(url, "//"):
		return "must not contain double slash"
	case stars > 1, stars == 1 && !strings.HasSuffix(url, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}
