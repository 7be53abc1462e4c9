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

	"github.com/kindred-project/kindred/internal/registry/check"
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
		Validate: func(_ context.Context, c *check.Checker, p, _ *flowcontrolv1.PriorityLevelConfiguration) {
			validateConditions(c, p.Status.Conditions, levelCondition)
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

// queuing returns a cell with a number from the queuing configuration, if the level has one.
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

func validatePriorityLevel(_ context.Context, c *check.Checker, p *flowcontrolv1.PriorityLevelConfiguration) {
	// The annotation preserved a zero in v1beta3, and is invalid in v1.
	if _, ok := p.Annotations[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]; ok {
		c.Forbidden(field.NewPath("metadata", "annotations"), fmt.Sprintf("annotation '%s' is forbidden", flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey))
	}
	path := field.NewPath("spec")
	validateLevelSpec(c, p.Name, &p.Spec, path)
	validateMandatoryLevel(c, p, path)
	validateConditions(c, p.Status.Conditions, levelCondition)
}

func validateLevelSpec(c *check.Checker, name string, spec *flowcontrolv1.PriorityLevelConfigurationSpec, path *field.Path) {
	exempt, limited := path.Child("exempt"), path.Child("limited")
	if (name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		c.Invalid(path.Child("type"), spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'")
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Limited != nil {
			c.Declared().Forbidden(limited, "must be nil if the type is not Limited")
		}
		if e := spec.Exempt; e != nil {
			nonNegative(c, e.NominalConcurrencyShares, exempt.Child("nominalConcurrencyShares"), "must be a non-negative integer")
			percentage(c, e.LendablePercent, exempt.Child("lendablePercent"))
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			c.Declared().Forbidden(exempt, "must be nil if the type is Limited")
		}
		if spec.Limited == nil {
			c.Declared().Required(limited, "must not be empty when type is Limited")
			return
		}
		validateLimited(c, spec.Limited, limited)
	case "":
		c.Declared().Required(path.Child("type"), "")
	default:
		check.OneOf(c, path.Child("type"), spec.Type, enablements...)
	}
}

func validateLimited(c *check.Checker, l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) {
	nonNegative(c, l.NominalConcurrencyShares, path.Child("nominalConcurrencyShares"), "must be a non-negative integer")
	validateResponse(c, &l.LimitResponse, path.Child("limitResponse"))
	percentage(c, l.LendablePercent, path.Child("lendablePercent"))
	nonNegative(c, l.BorrowingLimitPercent, path.Child("borrowingLimitPercent"), "if specified, must be a non-negative integer")
}

func nonNegative(c *check.Checker, n *int32, path *field.Path, problem string) {
	if n == nil || *n >= 0 {
		return
	}
	c.Invalid(path, *n, problem)
}

func percentage(c *check.Checker, n *int32, path *field.Path) {
	if n == nil || *n >= 0 && *n <= 100 {
		return
	}
	c.Invalid(path, *n, "must be between 0 and 100, inclusive")
}

func validateResponse(c *check.Checker, r *flowcontrolv1.LimitResponse, path *field.Path) {
	queues := path.Child("queuing")
	switch {
	case r.Type == "":
		c.Declared().Required(path.Child("type"), "")
	case !slices.Contains(responses, r.Type):
		c.Add(field.NotSupported(path.Child("type"), r.Type, responses))
	case r.Type == flowcontrolv1.LimitResponseTypeQueue && r.Queuing == nil:
		c.Declared().Required(queues, "must not be empty if limited.limitResponse.type is Limited")
	case r.Type == flowcontrolv1.LimitResponseTypeQueue:
		validateQueuing(c, r.Queuing, queues)
	case r.Queuing != nil:
		c.Declared().Forbidden(queues, "must be nil if limited.limitResponse.type is not Limited")
	}
}

// validateQueuing limits the numbers so that a hash has enough bits to deal a hand of queues to
// each flow (shuffle sharding).
func validateQueuing(c *check.Checker, q *flowcontrolv1.QueuingConfiguration, path *field.Path) {
	if q.QueueLengthLimit <= 0 {
		c.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive")
	}
	switch queues := path.Child("queues"); {
	case q.Queues <= 0:
		c.Invalid(queues, q.Queues, "must be positive")
	case q.Queues > maxQueues:
		c.Invalid(queues, q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	hand := path.Child("handSize")
	switch {
	case q.HandSize <= 0:
		c.Invalid(hand, q.HandSize, "must be positive")
		return
	case q.HandSize > q.Queues:
		c.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues))
		return
	}
	if shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits {
		c.Invalid(hand, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits))
	}
}

// validateMandatoryLevel forbids changes of mandatory levels, except of how much the exempt level
// lends.
func validateMandatoryLevel(c *check.Checker, p *flowcontrolv1.PriorityLevelConfiguration, path *field.Path) {
	mandatory := mandatoryLevel(p.Name)
	if mandatory == nil {
		return
	}
	except := ""
	if p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		except = " except the 'spec.exempt' field"
		mandatory.Spec.Exempt = p.Spec.Exempt
	}
	if !equality.Semantic.DeepEqual(p.Spec, mandatory.Spec) {
		c.Invalid(path, p.Spec, fmt.Sprintf("spec of '%s'%s must equal the fixed value", p.Name, except))
	}
}
