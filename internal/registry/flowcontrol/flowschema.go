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
		Validate: func(_ context.Context, f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
			return validateConditions(f.Status.Conditions, flowCondition)
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

func validateFlowSchema(_ context.Context, f *flowcontrolv1.FlowSchema) field.ErrorList {
	spec, path := &f.Spec, field.NewPath("spec")
	errs := validatePrecedence(f.Name, spec.MatchingPrecedence, path.Child("matchingPrecedence"))
	if d := spec.DistinguisherMethod; d != nil && !slices.Contains(distinguishers, d.Type) {
		// Upstream shows its internal type, whose fields have no JSON names.
		shown := struct {
			Type flowcontrolv1.FlowDistinguisherMethodType
		}{d.Type}
		errs = append(errs, field.NotSupported(path.Child("distinguisherMethod", "type"), shown, distinguishers))
	}
	level := path.Child("priorityLevelConfiguration", "name")
	if name := spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, generic.Invalid(level, name, apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	for i := range spec.Rules {
		errs = append(errs, validateRule(&spec.Rules[i], path.Child("rules").Index(i))...)
	}
	if mandatory := mandatoryFlowSchema(f.Name); mandatory != nil && !equality.Semantic.DeepEqual(f.Spec, mandatory.Spec) {
		errs = append(errs, field.Invalid(path, f.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name)))
	}
	return append(errs, validateConditions(f.Status.Conditions, flowCondition)...)
}

func validatePrecedence(name string, precedence int32, path *field.Path) field.ErrorList {
	switch {
	case precedence <= 0:
		return field.ErrorList{field.Invalid(path, precedence, "must be a positive value")}
	case precedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		return field.ErrorList{field.Invalid(path, precedence, fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))}
	case precedence == 1 && name != flowcontrolv1.FlowSchemaNameExempt:
		return field.ErrorList{field.Invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")}
	}
	return nil
}

func validateRule(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(&r.Subjects[i], path.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		errs = append(errs, validateURLRule(&r.NonResourceRules[i], path.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

// validateSubject wants the member that the kind names, and no other.
func validateSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	if !slices.Contains(subjectKinds, s.Kind) {
		return field.ErrorList{field.NotSupported(path.Child("kind"), s.Kind, subjectKinds)}
	}
	var errs field.ErrorList
	switch s.Kind {
	case flowcontrolv1.SubjectKindServiceAccount:
		errs = validateAccount(s.ServiceAccount, path.Child("serviceAccount"))
	case flowcontrolv1.SubjectKindUser:
		errs = validateNamed(s.User != nil, func() string { return s.User.Name }, path.Child("user"), s.Kind)
	case flowcontrolv1.SubjectKindGroup:
		errs = validateNamed(s.Group != nil, func() string { return s.Group.Name }, path.Child("group"), s.Kind)
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
			errs = append(errs, field.Forbidden(path.Child(member.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", member.name, member.kind)))
		}
	}
	return errs
}

func validateNamed(set bool, name func() string, path *field.Path, kind flowcontrolv1.SubjectKind) field.ErrorList {
	switch {
	case !set:
		return field.ErrorList{field.Required(path, fmt.Sprintf("%s is required when subject kind is '%s'", strings.ToLower(string(kind)), kind))}
	case name() == "":
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return nil
}

func validateAccount(s *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "serviceAccount is required when subject kind is 'ServiceAccount'")}
	}
	var errs field.ErrorList
	switch s.Name {
	case "":
		errs = append(errs, field.Required(path.Child("name"), ""))
	case flowcontrolv1.NameAll:
	default:
		errs = append(errs, generic.Invalid(path.Child("name"), s.Name, apivalidation.ValidateServiceAccountName(s.Name, false))...)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, generic.Invalid(path.Child("namespace"), s.Namespace, apivalidation.ValidateNamespaceName(s.Namespace, false))...)
}

const wildcard = "*"

// list is one list of a rule, whose wildcard must stand alone.
type list struct {
	values []string
	path   *field.Path
	// missing says what is wrong with an empty list, others what stands beside a wildcard.
	missing, others string
}

func (l list) hasWildcard() bool { return slices.Contains(l.values, wildcard) }

func (l list) validate() field.ErrorList {
	switch {
	case len(l.values) == 0:
		return field.ErrorList{field.Required(l.path, l.missing)}
	case len(l.values) > 1 && l.hasWildcard():
		return field.ErrorList{field.Invalid(l.path, l.values, "if '*' is present, must not specify other "+l.others)}
	}
	return nil
}

func validateVerbs(given []string, path *field.Path) field.ErrorList {
	l := list{given, path, "verbs must contain at least one value", "verbs"}
	isUnknown := func(verb string) bool { return !slices.Contains(verbs, verb) }
	if !l.hasWildcard() && slices.ContainsFunc(given, isUnknown) {
		return field.ErrorList{field.NotSupported(path, given, verbs)}
	}
	return l.validate()
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	errs = append(errs, list{r.APIGroups, path.Child("apiGroups"), "resource rules must supply at least one api group", "api groups"}.validate()...)
	errs = append(errs, list{r.Resources, path.Child("resources"), "resource rules must supply at least one resource", "resources"}.validate()...)
	namespaces := list{r.Namespaces, path.Child("namespaces"), "resource rules that are not cluster scoped must supply at least one namespace", "namespaces"}
	if len(r.Namespaces) == 0 && r.ClusterScope {
		return errs
	}
	errs = append(errs, namespaces.validate()...)
	if namespaces.hasWildcard() {
		return errs
	}
	for i, name := range r.Namespaces {
		for _, problem := range apivalidation.ValidateNamespaceName(name, false) {
			errs = append(errs, field.Invalid(namespaces.path.Index(i), name, "each member of this list must be '*' or a DNS-1123 label; "+problem))
		}
	}
	return errs
}

func validateURLRule(r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	urls := list{r.NonResourceURLs, path.Child("nonResourceURLs"), "nonResourceURLs must contain at least one value", "non-resource URLs"}
	errs = append(errs, urls.validate()...)
	if urls.hasWildcard() {
		return errs
	}
	for i, url := range r.NonResourceURLs {
		if problem := urlProblem(url); problem != "" {
			errs = append(errs, field.Invalid(urls.path.Index(i), url, problem))
		}
	}
	return errs
}

// urlProblem says what is wrong with a path, whose end may be a wildcard.
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
