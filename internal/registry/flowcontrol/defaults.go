// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"cmp"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

const (
	defaultMatchingPrecedence int32 = 1000
	defaultConcurrencyShares  int32 = 30
	defaultQueues             int32 = 64
	defaultHandSize           int32 = 8
	defaultQueueLengthLimit   int32 = 50
)

func SetDefaults_FlowSchemaSpec(s *flowcontrolv1.FlowSchemaSpec) {
	s.MatchingPrecedence = cmp.Or(s.MatchingPrecedence, defaultMatchingPrecedence)
}

func SetDefaults_ExemptPriorityLevelConfiguration(e *flowcontrolv1.ExemptPriorityLevelConfiguration) {
	e.NominalConcurrencyShares = cmp.Or(e.NominalConcurrencyShares, new(int32))
	e.LendablePercent = cmp.Or(e.LendablePercent, new(int32))
}

func SetDefaults_LimitedPriorityLevelConfiguration(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
	l.NominalConcurrencyShares = cmp.Or(l.NominalConcurrencyShares, new(defaultConcurrencyShares))
	l.LendablePercent = cmp.Or(l.LendablePercent, new(int32))
}

func SetDefaults_QueuingConfiguration(q *flowcontrolv1.QueuingConfiguration) {
	q.Queues = cmp.Or(q.Queues, defaultQueues)
	q.HandSize = cmp.Or(q.HandSize, defaultHandSize)
	q.QueueLengthLimit = cmp.Or(q.QueueLengthLimit, defaultQueueLengthLimit)
}
