// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/schedule"
)

// CronJob creates Jobs on a schedule.
var CronJob = generic.Kind[*batchv1.CronJob]{
	Name: "CronJob", Plural: "cronjobs", ShortNames: []string{"cj"}, Categories: []string{"all"},
	New:     func() *batchv1.CronJob { return &batchv1.CronJob{} },
	NewList: func() runtime.Object { return &batchv1.CronJobList{} },
	Spec:    func(c *batchv1.CronJob) any { return &c.Spec },
	Status:  func(c *batchv1.CronJob) any { return &c.Status },
	Prepare: func(ctx context.Context, c, old *batchv1.CronJob) {
		dropAlphaFields(ctx, c, old, func(c *batchv1.CronJob) *batchv1.JobSpec { return &c.Spec.JobTemplate.Spec })
	},

	Validate:       validateCronJob,
	ValidateUpdate: validateCronJobUpdate,
	Warnings:       cronJobWarnings,

	Columns: append([]generic.Column[*batchv1.CronJob]{
		{Name: "Schedule", Description: cronJobDoc["schedule"], Cell: func(c *batchv1.CronJob) any { return c.Spec.Schedule }},
		{Name: "Timezone", Description: cronJobDoc["timeZone"], Cell: func(c *batchv1.CronJob) any { return ptr.Deref(c.Spec.TimeZone, "<none>") }},
		{Name: "Suspend", Type: "boolean", Description: cronJobDoc["suspend"], Cell: suspendCell},
		{Name: "Active", Type: "integer", Description: batchv1.CronJobStatus{}.SwaggerDoc()["active"], Cell: func(c *batchv1.CronJob) any { return len(c.Status.Active) }},
		{Name: "Last Schedule", Description: batchv1.CronJobStatus{}.SwaggerDoc()["lastScheduleTime"], Cell: lastScheduleCell},
	}, templateColumns(func(c *batchv1.CronJob) *batchv1.JobSpec { return &c.Spec.JobTemplate.Spec })...),
}

var cronJobDoc = batchv1.CronJobSpec{}.SwaggerDoc()

func suspendCell(c *batchv1.CronJob) any {
	switch suspend := c.Spec.Suspend; {
	case suspend == nil:
		return "<unset>"
	case *suspend:
		return "True"
	}
	return "False"
}

func lastScheduleCell(c *batchv1.CronJob) any {
	last := c.Status.LastScheduleTime
	if last == nil {
		return "<none>"
	}
	return generic.Timed(func(clk clock.PassiveClock) string { return generic.Age(clk, *last) })
}

// A Job's name is the name of its CronJob and 11 characters for the scheduled time.
const maxCronJobName = validation.DNS1035LabelMaxLength - 11

func validateCronJob(_ context.Context, c *check.Checker, cj *batchv1.CronJob) {
	validateCronJobSpec(c, &cj.Spec, nil, field.NewPath("spec"))
	if len(cj.Name) > maxCronJobName {
		c.Invalid(field.NewPath("metadata", "name"), cj.Name, fmt.Sprintf("must be no more than %d characters", maxCronJobName))
	}
}

func validateCronJobUpdate(_ context.Context, c *check.Checker, cj, old *batchv1.CronJob) {
	validateCronJobSpec(c, &cj.Spec, &old.Spec, field.NewPath("spec"))
}

// validateCronJobSpec accepts a time zone in the schedule, or an unknown time zone, if the old
// spec, nil on create, has it.
func validateCronJobSpec(c *check.Checker, spec, old *batchv1.CronJobSpec, path *field.Path) {
	validateSchedule(c, spec, old, path.Child("schedule"))
	check.NonNegativePtr(c, path.Child("startingDeadlineSeconds"), spec.StartingDeadlineSeconds)
	if old == nil || !ptr.Equal(spec.TimeZone, old.TimeZone) {
		validateTimeZone(c, spec.TimeZone, path.Child("timeZone"))
	}
	validateConcurrency(c, spec.ConcurrencyPolicy, path.Child("concurrencyPolicy"))
	validateJobTemplate(c, &spec.JobTemplate.Spec, path.Child("jobTemplate", "spec"))
	check.NonNegativePtr(c, path.Child("successfulJobsHistoryLimit"), spec.SuccessfulJobsHistoryLimit)
	check.NonNegativePtr(c, path.Child("failedJobsHistoryLimit"), spec.FailedJobsHistoryLimit)
}

func validateSchedule(c *check.Checker, spec, old *batchv1.CronJobSpec, path *field.Path) {
	if spec.Schedule == "" {
		c.Declared().Required(path, "")
		return
	}
	if _, err := schedule.Parse(spec.Schedule, nil); err != nil {
		c.Invalid(path, spec.Schedule, err.Error())
	}
	if !schedule.NamesZone(spec.Schedule) {
		return
	}
	switch zoneAllowed := old != nil && schedule.NamesZone(old.Schedule); {
	case !zoneAllowed:
		c.Invalid(path, spec.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	case spec.TimeZone != nil:
		c.Invalid(path, spec.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	}
}

// zonePart matches a part of a time zone's name by the rules of the tz database, and older names.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func validateTimeZone(c *check.Checker, zone *string, path *field.Path) {
	if zone == nil {
		return
	}
	if *zone == "" {
		c.Invalid(path, *zone, "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(*zone, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			c.Invalid(path, *zone, "unknown time zone "+*zone)
			return
		}
	}
	if strings.EqualFold(*zone, "Local") {
		c.Invalid(path, *zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		c.Invalid(path, *zone, err.Error())
	}
}

func validateConcurrency(c *check.Checker, policy batchv1.ConcurrencyPolicy, path *field.Path) {
	check.RequiredOneOf(c, path, policy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
}

// validateJobTemplate requires a template without manual selector.
func validateJobTemplate(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	validateJobSpec(c, spec, path)
	if spec.Selector != nil {
		c.Invalid(path.Child("selector"), spec.Selector, "`selector` will be auto-generated")
	}
	if ptr.Deref(spec.ManualSelector, false) {
		c.Add(field.NotSupported(path.Child("manualSelector"), true, []string{"nil", "false"}))
	}
}

func cronJobWarnings(_ context.Context, c, old *batchv1.CronJob) []string {
	spec, path := &c.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec")
	if old == nil {
		return append(nameWarnings(c.Name), specWarnings(spec, path)...)
	}
	var warnings []string
	if c.Generation != old.Generation {
		warnings = specWarnings(spec, path)
	}
	if schedule.NamesZone(c.Spec.Schedule) {
		warnings = append(warnings, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return warnings
}
