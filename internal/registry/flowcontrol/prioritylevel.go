// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"context"
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/shufflesharding"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// PriorityLevelConfiguration limits the concurrent requests of a level, and queues or rejects others.
var PriorityLevelConfiguration = generic.Kind[*flowcontrolv1.PriorityLevelConfiguration]{
	Name: "PriorityLevelConfiguration", Plural: "prioritylevelconfigurations", ClusterScoped: true,
	Metadata: generic.Metadata{ValidateAsNew: true},
	New:      func() *flowcontrolv1.PriorityLevelConfiguration { return &flowcontrolv1.PriorityLevelConfiguration{} },
	NewList:  func() runtime.Object { return &flowcontrolv1.PriorityLevelConfigurationList{} },
	Spec:     func(p *flowcontrolv1.PriorityLevelConfiguration) any { return &p.Spec },
	Status:   func(p *flowcontrolv1.PriorityLevelConfiguration) any { return &p.Status },
	StatusUpdate: generic.Update[*flowcontrolv1.PriorityLevelConfiguration]{
		Prepare: func(_ context.Context, p, old *flowcontrolv1.PriorityLevelConfiguration) {
			onlyStatus(&p.ObjectMeta, &old.ObjectMeta)
		},
		Resets: []string{"metadata"},
		Validate: func(_ context.Context, p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			return validateConditions(p.Status.Conditions, levelCondition)
		},
	},
	Validate: validatePriorityLevel,
	Columns: []generic.Column[*flowcontrolv1.PriorityLevelConfiguration]{
		{Name: "Type", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"],
			Cell: func(p *flowcontrolv1.PriorityLevelConfiguration) any { return string(p.Spec.Type) }},
		{Name: "NominalConcurrencyShares", Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"], Cell: shares},
		{Name: "Queues", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queues"],
			Cell: queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues })},
		{Name: "HandSize", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["handSize"],
			Cell: queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize })},
		{Name: "QueueLengthLimit", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queueLengthLimit"],
			Cell: queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit })},
	},
}

func levelCondition(c flowcontrolv1.PriorityLevelConfigurationCondition) string {
	return string(c.Type)
}

func shares(p *flowcontrolv1.PriorityLevelConfiguration) any {
	if p.Spec.Limited == nil {
		return generic.OrNone("")
	}
	return ptr.Deref(p.Spec.Limited.NominalConcurrencyShares, 0)
}

// queuing is a cell about the queues of a level, if it has any.
func queuing(number func(*flowcontrolv1.QueuingConfiguration) int32) func(*flowcontrolv1.PriorityLevelConfiguration) any {
	return func(p *flowcontrolv1.PriorityLevelConfiguration) any {
		if p.Spec.Limited == nil || p.Spec.Limited.LimitResponse.Queuing == nil {
			return generic.OrNone("")
		}
		return number(p.Spec.Limited.LimitResponse.Queuing)
	}
}

// maxQueues is the maximum number of queues of a level.
const maxQueues = 10 * 1000 * 1000

var (
	enablements = []flowcontrolv1.PriorityLevelEnablement{flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}
	responses   = []flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}
)

func validatePriorityLevel(_ context.Context, p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var errs field.ErrorList
	// It carried a zero through v1beta3, and means nothing here.
	if _, ok := p.Annotations[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]; ok {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"), fmt.Sprintf("annotation '%s' is forbidden", flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey)))
	}
	path := field.NewPath("spec")
	errs = append(errs, validateLevelSpec(p.Name, &p.Spec, path)...)
	errs = append(errs, validateMandatoryLevel(p, path)...)
	return append(errs, validateConditions(p.Status.Conditions, levelCondition)...)
}

func validateLevelSpec(name string, spec *flowcontrolv1.PriorityLevelConfigurationSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	exempt, limited := path.Child("exempt"), path.Child("limited")
	if (name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(path.Child("type"), spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Limited != nil {
			errs = append(errs, field.Forbidden(limited, "must be nil if the type is not Limited").MarkCoveredByDeclarative())
		}
		if e := spec.Exempt; e != nil {
			errs = append(errs, nonNegative(e.NominalConcurrencyShares, exempt.Child("nominalConcurrencyShares"), "must be a non-negative integer")...)
			errs = append(errs, percentage(e.LendablePercent, exempt.Child("lendablePercent"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			errs = append(errs, field.Forbidden(exempt, "must be nil if the type is Limited").MarkCoveredByDeclarative())
		}
		if spec.Limited == nil {
			return append(errs, field.Required(limited, "must not be empty when type is Limited").MarkCoveredByDeclarative())
		}
		errs = append(errs, validateLimited(spec.Limited, limited)...)
	case "":
		errs = append(errs, field.Required(path.Child("type"), "").MarkCoveredByDeclarative())
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), spec.Type, enablements))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := nonNegative(l.NominalConcurrencyShares, path.Child("nominalConcurrencyShares"), "must be a non-negative integer")
	errs = append(errs, validateResponse(&l.LimitResponse, path.Child("limitResponse"))...)
	errs = append(errs, percentage(l.LendablePercent, path.Child("lendablePercent"))...)
	return append(errs, nonNegative(l.BorrowingLimitPercent, path.Child("borrowingLimitPercent"), "if specified, must be a non-negative integer")...)
}

func nonNegative(n *int32, path *field.Path, problem string) field.ErrorList {
	if n == nil || *n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *n, problem)}
}

func percentage(n *int32, path *field.Path) field.ErrorList {
	if n == nil || *n >= 0 && *n <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *n, "must be between 0 and 100, inclusive")}
}

func validateResponse(r *flowcontrolv1.LimitResponse, path *field.Path) field.ErrorList {
	queues := path.Child("queuing")
	switch {
	case r.Type == "":
		return field.ErrorList{field.Required(path.Child("type"), "").MarkCoveredByDeclarative()}
	case !slices.Contains(responses, r.Type):
		return field.ErrorList{field.NotSupported(path.Child("type"), r.Type, responses)}
	case r.Type == flowcontrolv1.LimitResponseTypeQueue && r.Queuing == nil:
		return field.ErrorList{field.Required(queues, "must not be empty if limited.limitResponse.type is Limited").MarkCoveredByDeclarative()}
	case r.Type == flowcontrolv1.LimitResponseTypeQueue:
		return validateQueuing(r.Queuing, queues)
	case r.Queuing != nil:
		return field.ErrorList{field.Forbidden(queues, "must be nil if limited.limitResponse.type is not Limited").MarkCoveredByDeclarative()}
	}
	return nil
}

// validateQueuing wants a deck of queues from which a hash can deal a hand to each
// flow (shuffle sharding).
func validateQueuing(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	switch queues := path.Child("queues"); {
	case q.Queues <= 0:
		errs = append(errs, field.Invalid(queues, q.Queues, "must be positive"))
	case q.Queues > maxQueues:
		errs = append(errs, field.Invalid(queues, q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := path.Child("handSize")
	switch {
	case q.HandSize <= 0:
		return append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		return append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	}
	if shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits {
		errs = append(errs, field.Invalid(hand, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
	return errs
}

// validateMandatoryLevel lets nothing in a mandatory level change, but how much
// the exempt one lends.
func validateMandatoryLevel(p *flowcontrolv1.PriorityLevelConfiguration, path *field.Path) field.ErrorList {
	mandatory := mandatoryLevel(p.Name)
	if mandatory == nil {
		return nil
	}
	except := ""
	if p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		except = " except the 'spec.exempt' field"
		mandatory.Spec.Exempt = p.Spec.Exempt
	}
	if equality.Semantic.DeepEqual(p.Spec, mandatory.Spec) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, p.Spec, fmt.Sprintf("spec of '%s'%s must equal the fixed value", p.Name, except))}
}
