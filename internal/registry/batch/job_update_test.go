// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestJobUpdate(t *testing.T) {
	suspended := func(s *batchv1.JobSpec) { s.Suspend = new(true) }
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}},
	}}}}
	directives := func(s *batchv1.JobSpec) {
		s.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
		s.Template.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
		s.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
		s.Template.Spec.Affinity = affinity
		s.Template.Annotations = map[string]string{"a": "b"}
	}
	resources := func(s *batchv1.JobSpec) {
		s.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
	for name, test := range map[string]struct {
		before func(*batchv1.JobSpec)
		status batchv1.JobStatus
		change func(*batchv1.JobSpec)
		want   []string
	}{
		"counts": {before: func(*batchv1.JobSpec) {}, change: func(s *batchv1.JobSpec) {
			s.Parallelism, s.BackoffLimit, s.Suspend, s.TTLSecondsAfterFinished = new(int32(9)), new(int32(9)), new(true), new(int32(9))
			s.ActiveDeadlineSeconds = new(int64(9))
		}},
		"completions":                      {before: func(*batchv1.JobSpec) {}, change: func(s *batchv1.JobSpec) { s.Completions = new(int32(9)) }, want: []string{"spec.completions: Invalid value: 9: field is immutable"}},
		"indexed, with parallelism":        {before: indexed, change: func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = new(int32(9)), new(int32(9)) }},
		"indexed, without parallelism":     {before: indexed, change: func(s *batchv1.JobSpec) { s.Completions = new(int32(9)) }, want: []string{"spec.completions: Invalid value: 9: can only be modified in tandem with spec.parallelism"}},
		"image":                            {before: suspended, change: func(s *batchv1.JobSpec) { s.Template.Spec.Containers[0].Image = "other" }, want: []string{"spec.template.spec: Invalid value: {"}},
		"running, scheduling directives":   {before: func(*batchv1.JobSpec) {}, change: directives, want: []string{"spec.template: Invalid value: {"}},
		"suspended, scheduling directives": {before: suspended, change: directives},
		"scheduling directives removed":    {before: func(s *batchv1.JobSpec) { suspended(s); directives(s) }, change: func(s *batchv1.JobSpec) { s.Template.Spec.Affinity, s.Template.Spec.NodeSelector = nil, nil }},
		"other affinity": {before: suspended, change: func(s *batchv1.JobSpec) {
			s.Template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
		}, want: []string{"spec.template.spec: Invalid value: {"}},
		"suspended, resources":      {before: suspended, change: resources},
		"suspended, still stopping": {before: suspended, status: batchv1.JobStatus{StartTime: &metav1.Time{Time: time.Unix(1, 0)}}, change: resources, want: []string{"spec.template: Invalid value: {"}},
		"suspended, pods left":      {before: suspended, status: batchv1.JobStatus{Active: 1}, change: resources, want: []string{"spec.template: Invalid value: {"}},
		"stopped":                   {before: suspended, status: batchv1.JobStatus{StartTime: &metav1.Time{Time: time.Unix(1, 0)}, Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}}, change: resources},
		"another container": {before: suspended, change: func(s *batchv1.JobSpec) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "d", Image: "i", ImagePullPolicy: "Always", TerminationMessagePolicy: "File"})
		}, want: []string{"spec.template.spec: Invalid value: {"}},
		"selector":        {before: func(*batchv1.JobSpec) {}, change: func(s *batchv1.JobSpec) { s.Selector.MatchLabels = map[string]string{"job-name": "sum"} }, want: []string{"spec.selector: Invalid value: {"}},
		"mode":            {before: indexed, change: func(s *batchv1.JobSpec) { s.CompletionMode = new(batchv1.NonIndexedCompletion) }, want: []string{`spec.completionMode: Invalid value: "NonIndexed": field is immutable`}},
		"manager":         {before: func(*batchv1.JobSpec) {}, change: func(s *batchv1.JobSpec) { s.ManagedBy = new("a.b/c") }, want: []string{`spec.managedBy: Invalid value: "a.b/c": field is immutable`}},
		"limit per index": {before: indexed, change: func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = new(int32(1)) }, want: []string{"spec.backoffLimitPerIndex: Invalid value: 1: field is immutable"}},
		"failure, success policy": {before: indexed, change: func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: new(int32(1))}}}
			s.PodFailurePolicy, s.PodReplacementPolicy = &batchv1.PodFailurePolicy{}, new(batchv1.Failed)
		}, want: []string{"spec.podFailurePolicy: Invalid value: {", "spec.successPolicy: Invalid value: {"}},
	} {
		old := newJob(t, test.before)
		old.Status = test.status
		j := old.DeepCopy()
		test.change(&j.Spec)
		wantErrors(t, name, checktest.UpdateErrors(t.Context(), Job.ValidateUpdate, j, old), test.want...)
	}
}

func TestJobStatus(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return &metav1.Time{Time: time.Unix(seconds, 0)} }
	is := func(conditions ...batchv1.JobConditionType) []batchv1.JobCondition {
		var out []batchv1.JobCondition
		for _, c := range conditions {
			name, no := strings.CutPrefix(string(c), "-")
			status := corev1.ConditionTrue
			if no {
				status = corev1.ConditionFalse
			}
			out = append(out, batchv1.JobCondition{Type: batchv1.JobConditionType(name), Status: status})
		}
		return out
	}
	complete := is(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	failed := is(batchv1.JobFailureTarget, batchv1.JobFailed)
	plain := func(*batchv1.JobSpec) {}
	perIndex := func(s *batchv1.JobSpec) { indexed(s); s.BackoffLimitPerIndex = new(int32(1)) }
	type status = batchv1.JobStatus
	for name, test := range map[string]struct {
		spec    func(*batchv1.JobSpec)
		old, is status
		want    []string
	}{
		"running":                {plain, status{}, status{Active: 2, Ready: new(int32(1)), StartTime: at(1)}, nil},
		"complete":               {plain, status{}, status{Conditions: complete, StartTime: at(1), CompletionTime: at(2), Succeeded: 1}, nil},
		"failed":                 {plain, status{}, status{Conditions: failed, StartTime: at(1), Failed: 1}, nil},
		"negative":               {plain, status{}, status{Active: -1, Succeeded: -1, Failed: -1, Ready: new(int32(-1)), Terminating: new(int32(-1))}, []string{"status.active: Invalid value: -1", "status.succeeded: Invalid value: -1: must be", "status.succeeded: Invalid value: -1: cannot decrease the succeeded counter", "status.failed: Invalid value: -1: must be", "status.failed: Invalid value: -1: cannot decrease the failed counter", "status.ready: Invalid value: -1", "status.terminating: Invalid value: -1"}},
		"below":                  {plain, status{}, status{Active: -1}, []string{"status.active: Invalid value: -1"}},
		"more ready than active": {plain, status{}, status{Active: 1, Ready: new(int32(2))}, []string{"status.ready: Invalid value: 2: cannot set more ready pods than active"}},
		"uncounted":              {plain, status{}, status{UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a", ""}, Failed: []types.UID{"a"}}}, []string{`status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty`, `status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"`}},
		"complete and failed": {plain, status{}, status{Conditions: append(is(batchv1.JobComplete), failed...), StartTime: at(1), CompletionTime: at(2)}, []string{
			"status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
			"status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions",
			"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"}},
		"success and failure": {plain, status{}, status{Conditions: append(is(batchv1.JobSuccessCriteriaMet), failed...), StartTime: at(1)}, []string{
			"status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions",
			"status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"}},
		"failed without FailureTarget": {plain, status{}, status{Conditions: is(batchv1.JobFailed), StartTime: at(1)}, []string{"status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"}},
		"finished with active pods": {plain, status{}, status{Conditions: failed, Active: 1, Terminating: new(int32(1)), UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Failed: []types.UID{"a"}}}, []string{
			"status.active: Invalid value: 1: active>0 is invalid for finished job", "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
			"status.uncountedTerminatedPods: Invalid value: {", "status.startTime: Required value: startTime is required for finished job"}},
		"already invalid":                      {plain, status{Conditions: failed, Active: 1}, status{Conditions: failed, Active: 1, Failed: 1}, nil},
		"no completions":                       {func(s *batchv1.JobSpec) { s.Suspend, s.Completions = new(true), new(int32(0)) }, status{}, status{Conditions: complete, CompletionTime: at(2)}, nil},
		"no completion time":                   {plain, status{}, status{Conditions: complete, StartTime: at(1)}, []string{"status.completionTime: Required value: completionTime is required for Complete jobs"}},
		"completion time without Complete":     {plain, status{}, status{StartTime: at(1), CompletionTime: at(2)}, []string{"status.completionTime: Invalid value: "}},
		"completed before it started":          {plain, status{}, status{Conditions: complete, StartTime: at(3), CompletionTime: at(2)}, []string{"status.completionTime: Invalid value: "}},
		"changed completion time":              {plain, status{Conditions: complete, StartTime: at(1), CompletionTime: at(2)}, status{Conditions: complete, StartTime: at(1), CompletionTime: at(3)}, []string{"status.completionTime: Invalid value: "}},
		"changed start time":                   {plain, status{StartTime: at(1)}, status{StartTime: at(2)}, []string{"status.startTime: Invalid value: "}},
		"suspended":                            {func(s *batchv1.JobSpec) { s.Suspend = new(true) }, status{StartTime: at(1)}, status{}, nil},
		"resumed":                              {plain, status{StartTime: at(1), Conditions: is(batchv1.JobSuspended)}, status{StartTime: at(2), Conditions: is("-" + batchv1.JobSuspended)}, nil},
		"no longer complete":                   {plain, status{Conditions: complete, StartTime: at(1), CompletionTime: at(2)}, status{StartTime: at(1)}, []string{"status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition", "status.conditions: Invalid value: cannot disable the terminal Complete=True condition"}},
		"no longer failed":                     {plain, status{Conditions: failed, StartTime: at(1)}, status{StartTime: at(1)}, []string{"status.conditions: Invalid value: cannot disable the terminal Failed=True condition", "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition"}},
		"SuccessCriteriaMet after Complete":    {plain, status{Conditions: is(batchv1.JobComplete), StartTime: at(1), CompletionTime: at(2)}, status{Conditions: complete, StartTime: at(1), CompletionTime: at(2)}, []string{"status.conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"}},
		"fewer":                                {plain, status{Succeeded: 2, Failed: 2}, status{Succeeded: 1, Failed: 1}, []string{"status.succeeded: Invalid value: 1: cannot decrease the succeeded counter", "status.failed: Invalid value: 1: cannot decrease the failed counter"}},
		"scaled down":                          {indexed, status{Succeeded: 2}, status{Succeeded: 1}, nil},
		"indexes":                              {perIndex, status{}, status{CompletedIndexes: "0,2", FailedIndexes: new("1,3-4")}, nil},
		"invalid indexes":                      {indexed, status{}, status{CompletedIndexes: "0-9", FailedIndexes: new("1")}, []string{`status.completedIndexes: Invalid value: "0-9": error parsing completedIndexes: too large index: "9"`, `status.failedIndexes: Invalid value: "1": cannot set non-null failedIndexes when backoffLimitPerIndex is null`}},
		"overlap":                              {perIndex, status{}, status{CompletedIndexes: "0-2", FailedIndexes: new("2")}, []string{`status.failedIndexes: Invalid value: "2": failedIndexes and completedIndexes overlap at index: 2`}},
		"malformed":                            {perIndex, status{}, status{FailedIndexes: new("x")}, []string{`status.failedIndexes: Invalid value: "x": error parsing failedIndexes: cannot convert string to integer for index: "x"`}},
		"indexes of a job that is not indexed": {plain, status{}, status{CompletedIndexes: "0"}, []string{`status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode`}},
		"unchanged indexes":                    {plain, status{CompletedIndexes: "0-9"}, status{CompletedIndexes: "0-9", Active: 1}, nil},
		"by policy": {func(s *batchv1.JobSpec) {
			indexed(s)
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: new(int32(1))}}}
		}, status{Conditions: is(batchv1.JobComplete), StartTime: at(1), CompletionTime: at(2)}, status{Conditions: is(batchv1.JobComplete), StartTime: at(1), CompletionTime: at(2)},
			[]string{"status.conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"}},
	} {
		j := newJob(t, test.spec)
		old := j.DeepCopy()
		j.Status, old.Status = test.is, test.old
		wantErrors(t, name, checktest.UpdateErrors(t.Context(), Job.StatusUpdate.Validate, j, old), test.want...)
	}
}

func newCronJob(t *testing.T, change func(*batchv1.CronJobSpec)) *batchv1.CronJob {
	t.Helper()
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "daily", Namespace: "default"}, Spec: batchv1.CronJobSpec{Schedule: "* * * * *"}}
	c.Spec.JobTemplate.Spec.Template = template()
	change(&c.Spec)
	defaulting(t).Default(c)
	return c
}

func TestCronJobs(t *testing.T) {
	type spec = batchv1.CronJobSpec
	zone := func(name string) func(*spec) { return func(s *spec) { s.TimeZone = &name } }
	schedule := func(text string) func(*spec) { return func(s *spec) { s.Schedule = text } }
	const explicit = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
	for name, test := range map[string]struct {
		change func(*spec)
		want   []string
	}{
		"plain":                {func(*spec) {}, nil},
		"macro":                {schedule("@hourly"), nil},
		"no schedule":          {schedule(""), []string{"spec.schedule: Required value"}},
		"malformed":            {schedule("* * *"), []string{`spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]`}},
		"zone in the schedule": {schedule("TZ=UTC * * * * *"), []string{`spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`}},
		"parser panics":        {schedule("TZ=0"), []string{`spec.schedule: Invalid value: "TZ=0": invalid schedule format: runtime error`, `spec.schedule: Invalid value: "TZ=0": cannot use TZ`}},
		"zone":                 {zone("America/Argentina/Buenos_Aires"), nil},
		"empty zone":           {zone(""), []string{`spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string`}},
		"local":                {zone("local"), []string{`spec.timeZone: Invalid value: "local": ` + explicit, `spec.timeZone: Invalid value: "local": unknown time zone local`}},
		"Local":                {zone("Local"), []string{`spec.timeZone: Invalid value: "Local": ` + explicit}},
		"unknown zone":         {zone("Mars/Base"), []string{`spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base`}},
		"path":                 {zone("../UTC"), []string{`spec.timeZone: Invalid value: "../UTC": unknown time zone ../UTC`}},
		"dash":                 {zone("-UTC"), []string{`spec.timeZone: Invalid value: "-UTC": unknown time zone -UTC`}},
		"concurrency":          {func(s *spec) { s.ConcurrencyPolicy = "Queue" }, []string{`spec.concurrencyPolicy: Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"`}},
		"negative": {func(s *spec) {
			s.StartingDeadlineSeconds, s.SuccessfulJobsHistoryLimit, s.FailedJobsHistoryLimit = new(int64(-1)), new(int32(-1)), new(int32(-1))
		}, []string{"spec.startingDeadlineSeconds: Invalid value: -1", "spec.successfulJobsHistoryLimit: Invalid value: -1", "spec.failedJobsHistoryLimit: Invalid value: -1"}},
		"selector": {func(s *spec) {
			s.JobTemplate.Spec.Selector, s.JobTemplate.Spec.ManualSelector = &metav1.LabelSelector{}, new(true)
		}, []string{"spec.jobTemplate.spec.selector: Invalid value: {", `spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"`}},
		"template": {func(s *spec) { s.JobTemplate.Spec.Template.Spec.RestartPolicy = "" }, []string{"spec.jobTemplate.spec.template.spec.restartPolicy: Required value"}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), CronJob.Validate, newCronJob(t, test.change)), test.want...)
	}
	long := newCronJob(t, func(*spec) {})
	long.Name = strings.Repeat("a", 53)
	wantErrors(t, "long name", checktest.Errors(t.Context(), CronJob.Validate, long), `metadata.name: Invalid value: "`+long.Name+`": must be no more than 52 characters`)
	wantErrors(t, "long name, changed", checktest.UpdateErrors(t.Context(), CronJob.ValidateUpdate, long, long))
	old := newCronJob(t, schedule("TZ=UTC * * * * *"))
	wantErrors(t, "keeps its zone", checktest.UpdateErrors(t.Context(), CronJob.ValidateUpdate, old, old))
	both := newCronJob(t, func(s *spec) { schedule("TZ=UTC * * * * *")(s); zone("UTC")(s) })
	wantErrors(t, "two zones", checktest.UpdateErrors(t.Context(), CronJob.ValidateUpdate, both, old), `spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule`)
	stale := newCronJob(t, zone("Mars/Base"))
	wantErrors(t, "keeps its unknown zone", checktest.UpdateErrors(t.Context(), CronJob.ValidateUpdate, stale, stale))
	if got := CronJob.Warnings(t.Context(), old, old); len(got) != 1 || !strings.HasPrefix(got[0], "cannot use TZ or CRON_TZ in spec.spec.schedule") {
		t.Errorf("warnings %q", got)
	}
}
