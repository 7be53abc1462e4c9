// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobs holds what controllers that look at Jobs share.
package jobs

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Condition returns the condition of the given type, or nil.
func Condition(status *batchv1.JobStatus, of batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == of {
			return &status.Conditions[i]
		}
	}
	return nil
}

// Finished returns the condition Complete or Failed of a finished Job, or nil.
func Finished(job *batchv1.Job) *batchv1.JobCondition {
	for _, of := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := Condition(&job.Status, of); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// List returns the Jobs that the reader lists.
func List(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]*batchv1.Job, error) {
	found := &batchv1.JobList{}
	if err := from.List(ctx, found, opts...); err != nil {
		return nil, err
	}
	return owned.Pointers(found.Items), nil
}
