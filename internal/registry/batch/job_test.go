// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// wantErrors compares errors, in any order, with how they begin.
func wantErrors(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got  %q\n want %q", name, got, want)
	}
}

func defaulting(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range Group().Scheme {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "c", Image: "i"}},
	}}
}

// newJob returns a Job as it is before validation: with defaults and a generated selector.
func newJob(t *testing.T, change func(*batchv1.JobSpec)) *batchv1.Job {
	t.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "sum", Namespace: "default", UID: "u1"}, Spec: batchv1.JobSpec{Template: template()}}
	change(&j.Spec)
	defaulting(t).Default(j)
	Job.Prepare(t.Context(), j, nil)
	return j
}

func indexed(spec *batchv1.JobSpec) {
	spec.CompletionMode = new(batchv1.IndexedCompletion)
	spec.Completions, spec.Parallelism = new(int32(5)), new(int32(5))
}

func TestDefaults(t *testing.T) {
	ofJob := func(change func(*batchv1.JobSpec)) batchv1.JobSpec {
		spec := batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(6)),
			CompletionMode: new(batchv1.NonIndexedCompletion), Suspend: new(false), ManualSelector: new(false),
			PodReplacementPolicy: new(batchv1.TerminatingOrFailed),
		}
		change(&spec)
		return spec
	}
	for name, test := range map[string]struct{ given, want func(*batchv1.JobSpec) }{
		"nothing":      {func(*batchv1.JobSpec) {}, func(*batchv1.JobSpec) {}},
		"completions":  {func(s *batchv1.JobSpec) { s.Completions = new(int32(3)) }, func(s *batchv1.JobSpec) { s.Completions = new(int32(3)) }},
		"a work queue": {func(s *batchv1.JobSpec) { s.Parallelism = new(int32(3)) }, func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = new(int32(3)), nil }},
		"limit per index": {
			func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = new(int32(1)) },
			func(s *batchv1.JobSpec) {
				s.BackoffLimitPerIndex, s.BackoffLimit = new(int32(1)), new(int32(2147483647))
			},
		},
		"failure policy": {
			func(s *batchv1.JobSpec) {
				s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{OnPodConditions: make([]batchv1.PodFailurePolicyOnPodConditionsPattern, 1)}}}
			},
			func(s *batchv1.JobSpec) {
				s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Status: corev1.ConditionTrue}}}}}
				s.PodReplacementPolicy = new(batchv1.Failed)
			},
		},
	} {
		j := &batchv1.Job{}
		test.given(&j.Spec)
		defaulting(t).Default(j)
		j.Spec.Template = corev1.PodTemplateSpec{} // defaulted by package core
		if diff := cmp.Diff(ofJob(test.want), j.Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	c := &batchv1.CronJob{}
	defaulting(t).Default(c)
	if c.Spec.JobTemplate.Spec.Template.Spec.DNSPolicy != corev1.DNSClusterFirst {
		t.Error("the pod template of a CronJob has no defaults")
	}
	c.Spec.JobTemplate = batchv1.JobTemplateSpec{}
	want := batchv1.CronJobSpec{ConcurrencyPolicy: batchv1.AllowConcurrent, Suspend: new(false), SuccessfulJobsHistoryLimit: new(int32(3)), FailedJobsHistoryLimit: new(int32(1))}
	if diff := cmp.Diff(want, c.Spec); diff != "" {
		t.Errorf("CronJob (-want +got):\n%s", diff)
	}
}

func TestSelectorsAreGenerated(t *testing.T) {
	want := map[string]string{
		"a": "b", "controller-uid": "u1", "job-name": "sum",
		"batch.kubernetes.io/controller-uid": "u1", "batch.kubernetes.io/job-name": "sum",
	}
	j := newJob(t, func(s *batchv1.JobSpec) { s.Template.Labels = map[string]string{"a": "b"} })
	if diff := cmp.Diff(want, j.Spec.Template.Labels); diff != "" {
		t.Errorf("labels of pods:\n%s", diff)
	}
	if diff := cmp.Diff(want, j.Labels); diff != "" {
		t.Errorf("labels of the job:\n%s", diff)
	}
	if got := metav1.FormatLabelSelector(j.Spec.Selector); got != "batch.kubernetes.io/controller-uid=u1" {
		t.Errorf("selector %s", got)
	}

	manual := func(s *batchv1.JobSpec) {
		s.ManualSelector = new(true)
		s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		s.Template.Labels = map[string]string{"a": "b"}
	}
	if j := newJob(t, manual); len(j.Spec.Template.Labels) != 1 || len(j.Spec.Selector.MatchLabels) != 1 {
		t.Errorf("generated although manual: %v", j.Spec)
	}
	wantErrors(t, "manual", checktest.Errors(t.Context(), Job.Validate, newJob(t, manual)))

	for name, test := range map[string]struct {
		change func(*batchv1.JobSpec)
		want   []string
	}{
		"own selector": {
			func(s *batchv1.JobSpec) { s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}} },
			[]string{"spec.selector: Invalid value: {", "spec.template.metadata.labels: Invalid value: {"},
		},
		"another Job's UID": {
			func(s *batchv1.JobSpec) { s.Template.Labels = map[string]string{"controller-uid": "u2"} },
			[]string{`spec.template.metadata.labels[controller-uid]: Invalid value: {`},
		},
		"manual, no selector": {
			func(s *batchv1.JobSpec) { s.ManualSelector = new(true) },
			[]string{"spec.selector: Required value", "spec.template.metadata.labels: Invalid value: null: `selector` does not match"},
		},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), Job.Validate, newJob(t, test.change)), test.want...)
	}
	none := newJob(t, func(*batchv1.JobSpec) {})
	none.Spec.Template.Labels, none.UID = nil, ""
	wantErrors(t, "lost", checktest.Errors(t.Context(), Job.Validate, none),
		"metadata.uid: Required value",
		"spec.template.metadata.labels[controller-uid]: Required value: must be ''",
		"spec.template.metadata.labels[job-name]: Required value: must be 'sum'",
		"spec.template.metadata.labels[batch.kubernetes.io/controller-uid]: Required value: must be ''",
		"spec.template.metadata.labels[batch.kubernetes.io/job-name]: Required value: must be 'sum'",
		"spec.selector: Invalid value: {", "spec.template.metadata.labels: Invalid value: null")
}

func TestJobs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*batchv1.JobSpec)
		want   []string
	}{
		"plain":   {func(*batchv1.JobSpec) {}, nil},
		"indexed": {indexed, nil},
		"negative": {func(s *batchv1.JobSpec) {
			s.Parallelism, s.Completions, s.BackoffLimit, s.TTLSecondsAfterFinished = new(int32(-1)), new(int32(-1)), new(int32(-1)), new(int32(-1))
			s.ActiveDeadlineSeconds = new(int64(-1))
		}, []string{"spec.parallelism: Invalid value: -1: must be greater than or equal to 0", "spec.completions: Invalid value: -1", "spec.backoffLimit: Invalid value: -1", "spec.ttlSecondsAfterFinished: Invalid value: -1", "spec.activeDeadlineSeconds: Invalid value: -1"}},
		"restart policy Always":  {func(s *batchv1.JobSpec) { s.Template.Spec.RestartPolicy = "" }, []string{`spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`}},
		"unknown restart policy": {func(s *batchv1.JobSpec) { s.Template.Spec.RestartPolicy = "Maybe" }, []string{`spec.template.spec.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"`, `spec.template.spec.restartPolicy: Unsupported value: "Maybe": supported values: "OnFailure", "Never"`}},
		"mode":                   {func(s *batchv1.JobSpec) { s.CompletionMode = new(batchv1.CompletionMode("Some")) }, []string{`spec.completionMode: Unsupported value: "Some": supported values: "NonIndexed", "Indexed"`}},
		"replacement":            {func(s *batchv1.JobSpec) { s.PodReplacementPolicy = new(batchv1.PodReplacementPolicy("Never")) }, []string{`spec.podReplacementPolicy: Unsupported value: "Never": supported values: "Failed", "TerminatingOrFailed"`}},
		"manager":                {func(s *batchv1.JobSpec) { s.ManagedBy = new("example.com/queue") }, nil},
		"long manager":           {func(s *batchv1.JobSpec) { s.ManagedBy = new("example.com/" + strings.Repeat("a", 52)) }, []string{"spec.managedBy: Too long: may not be more than 63 bytes"}},
		"manager without domain": {func(s *batchv1.JobSpec) { s.ManagedBy = new("queue") }, []string{`spec.managedBy: Invalid value: "queue": must be a domain-prefixed path`}},
		"per index, not indexed": {func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex, s.MaxFailedIndexes = new(int32(1)), new(int32(1)) },
			[]string{"spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode", "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode"}},
		"maxFailedIndexes without backoffLimitPerIndex": {func(s *batchv1.JobSpec) { indexed(s); s.MaxFailedIndexes = new(int32(1)) }, []string{"spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"}},
		"max failed": {func(s *batchv1.JobSpec) {
			indexed(s)
			s.BackoffLimitPerIndex, s.MaxFailedIndexes = new(int32(1)), new(int32(6))
		}, []string{"spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions"}},
		"indexed, no count":             {func(s *batchv1.JobSpec) { indexed(s); s.Completions = nil }, []string{"spec.completions: Required value: when completion mode is Indexed"}},
		"indexed, too many in parallel": {func(s *batchv1.JobSpec) { indexed(s); s.Parallelism = new(int32(100001)) }, []string{"spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed"}},
		"many completions": {func(s *batchv1.JobSpec) {
			indexed(s)
			s.Completions, s.Parallelism, s.BackoffLimitPerIndex = new(int32(100001)), new(int32(10001)), new(int32(1))
		}, []string{"spec.maxFailedIndexes: Required value: must be specified when completions is above 100000", "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"}},
		"many failed indexes": {func(s *batchv1.JobSpec) {
			indexed(s)
			s.Completions, s.BackoffLimitPerIndex, s.MaxFailedIndexes = new(int32(100001)), new(int32(1)), new(int32(10001))
		}, []string{"spec.maxFailedIndexes: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), Job.Validate, newJob(t, test.change)), test.want...)
	}
	long := newJob(t, indexed)
	long.Name = strings.Repeat("a", 62)
	long.Spec.ManualSelector = new(true)
	wantErrors(t, "hostname", checktest.Errors(t.Context(), Job.Validate, long), fmt.Sprintf("metadata.name: Invalid value: %q: will not able to create pod with invalid DNS label: %s-4", long.Name, long.Name))
}

func TestFailurePolicies(t *testing.T) {
	codes := func(operator batchv1.PodFailurePolicyOnExitCodesOperator, container *string, values ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: operator, ContainerName: container, Values: values}}
	}
	conditions := func(conditions ...batchv1.PodFailurePolicyOnPodConditionsPattern) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: conditions}
	}
	target := batchv1.PodFailurePolicyOnPodConditionsPattern{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}
	const rule = "spec.podFailurePolicy.rules[0]"
	for name, test := range map[string]struct {
		rule batchv1.PodFailurePolicyRule
		want []string
	}{
		"codes":             {codes("In", new("c"), 1, 42), nil},
		"conditions":        {conditions(target), nil},
		"operator":          {codes("", nil, 1), []string{rule + `.onExitCodes.operator: Required value: valid values: ["In" "NotIn"]`}},
		"unknown operator":  {codes("Like", nil, 1), []string{rule + `.onExitCodes.operator: Unsupported value: "Like": supported values: "In", "NotIn"`}},
		"unknown container": {codes("In", new("d"), 1), []string{rule + `.onExitCodes.containerName: Invalid value: "d": must be one of the container or initContainer names in the pod template`}},
		"no values":         {codes("In", nil), []string{rule + ".onExitCodes.values: Invalid value: null: at least one value is required"}},
		"zero":              {codes("In", nil, 0), []string{rule + ".onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"}},
		"exit code 0":       {codes("NotIn", nil, 0), nil},
		"unordered":         {codes("In", nil, 2, 1, 1), []string{rule + ".onExitCodes.values[2]: Duplicate value: 1", rule + ".onExitCodes.values: Invalid value: [2,1,1]: must be ordered"}},
		"too many":          {codes("NotIn", nil, many(256)...), []string{rule + ".onExitCodes.values: Too many: 256: must have at most 255 items"}},
		"no status":         {conditions(batchv1.PodFailurePolicyOnPodConditionsPattern{Type: "a/b", Status: "Perhaps"}), []string{rule + `.onPodConditions[0].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown"`}},
		"no type":           {conditions(batchv1.PodFailurePolicyOnPodConditionsPattern{Status: "True"}), []string{rule + `.onPodConditions[0].type: Invalid value: "": name part must be non-empty`, rule + `.onPodConditions[0].type: Invalid value: "": name part must consist of`}},
		"many conditions":   {conditions(slices.Repeat([]batchv1.PodFailurePolicyOnPodConditionsPattern{target}, 21)...), []string{rule + ".onPodConditions: Too many: 21: must have at most 20 items"}},
		"neither":           {batchv1.PodFailurePolicyRule{Action: "Count"}, []string{rule + ": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"}},
		"action":            {batchv1.PodFailurePolicyRule{OnPodConditions: conditions(target).OnPodConditions}, []string{rule + `.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`}},
		"fail index":        {batchv1.PodFailurePolicyRule{Action: "FailIndex", OnPodConditions: conditions(target).OnPodConditions}, []string{rule + `.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`}},
		"unknown action":    {batchv1.PodFailurePolicyRule{Action: "Cry", OnPodConditions: conditions(target).OnPodConditions}, []string{rule + `.action: Unsupported value: "Cry": supported values: "Count", "FailIndex", "FailJob", "Ignore"`}},
	} {
		j := newJob(t, func(s *batchv1.JobSpec) {
			s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{test.rule}}
		})
		wantErrors(t, name, checktest.Errors(t.Context(), Job.Validate, j), test.want...)
	}
	both := conditions(target)
	both.OnExitCodes = codes("In", nil, 1).OnExitCodes
	j := newJob(t, func(s *batchv1.JobSpec) {
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: slices.Repeat([]batchv1.PodFailurePolicyRule{codes("In", nil, 1)}, 20)}
		s.PodFailurePolicy.Rules = append(s.PodFailurePolicy.Rules, both)
		s.PodReplacementPolicy = new(batchv1.TerminatingOrFailed)
		s.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	})
	wantErrors(t, "all wrong", checktest.Errors(t.Context(), Job.Validate, j),
		"spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items",
		"spec.podFailurePolicy.rules[20]: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
		`spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"`,
		`spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified`)
}

func many(n int32) []int32 {
	var out []int32
	for i := range n {
		out = append(out, i)
	}
	return out
}

func TestSuccessPolicies(t *testing.T) {
	const rule = "spec.successPolicy.rules[0]"
	for name, test := range map[string]struct {
		rule batchv1.SuccessPolicyRule
		want []string
	}{
		"count":                      {batchv1.SuccessPolicyRule{SucceededCount: new(int32(5))}, nil},
		"indexes":                    {batchv1.SuccessPolicyRule{SucceededIndexes: new("0,2-4")}, nil},
		"some":                       {batchv1.SuccessPolicyRule{SucceededIndexes: new("0,2-4"), SucceededCount: new(int32(4))}, nil},
		"neither":                    {batchv1.SuccessPolicyRule{}, []string{rule + ": Required value: at least one of succeededCount or succeededIndexes must be specified"}},
		"count above completions":    {batchv1.SuccessPolicyRule{SucceededCount: new(int32(6))}, []string{rule + ".succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)"}},
		"count above listed indexes": {batchv1.SuccessPolicyRule{SucceededIndexes: new("0,2-4"), SucceededCount: new(int32(5))}, []string{rule + ".succeededCount: Invalid value: 5: must be less than or equal to 4 (the number of indexes in the specified succeededIndexes field)"}},
		"negative":                   {batchv1.SuccessPolicyRule{SucceededCount: new(int32(-1))}, []string{rule + ".succeededCount: Invalid value: -1: must be greater than or equal to 0"}},
		"index above completions":    {batchv1.SuccessPolicyRule{SucceededIndexes: new("5")}, []string{rule + `.succeededIndexes: Invalid value: "5": error parsing succeededIndexes: too large index: "5"`}},
	} {
		j := newJob(t, func(s *batchv1.JobSpec) {
			indexed(s)
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{test.rule}}
		})
		wantErrors(t, name, checktest.Errors(t.Context(), Job.Validate, j), test.want...)
	}
	policy := &batchv1.SuccessPolicy{}
	wantErrors(t, "not indexed", checktest.Errors(t.Context(), Job.Validate, newJob(t, func(s *batchv1.JobSpec) { s.SuccessPolicy = policy })), "spec.successPolicy: Invalid value: {")
	wantErrors(t, "no rules", checktest.Errors(t.Context(), Job.Validate, newJob(t, func(s *batchv1.JobSpec) { indexed(s); s.SuccessPolicy = policy })), "spec.successPolicy.rules: Required value")
	wantErrors(t, "no count", checktest.Errors(t.Context(), Job.Validate, newJob(t, func(s *batchv1.JobSpec) {
		indexed(s)
		s.Completions, s.SuccessPolicy = nil, &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: new(int32(1))}}}
	})), "spec.completions: Required value")
}

func TestIndexes(t *testing.T) {
	for list, want := range map[string]string{
		"": "0", "0": "1", "1,3-5,9": "5", "0-9": "10",
		"10":    `too large index: "10"`,
		"3-12":  `too large index: "12"`,
		"x":     `cannot convert string to integer for index: "x"`,
		"1,":    `cannot convert string to integer for index: ""`,
		"1-2-3": `the fragment "1-2-3" violates the requirement that an index interval can have at most two parts separated by '-'`,
		"4-4":   "non-increasing order, previous: 4, current: 4",
		"3,2":   "non-increasing order, previous: 3, current: 2",
		"1-3,3": "non-increasing order, previous: 3, current: 3",
	} {
		n, err := countIndexes(list, 10)
		got := fmt.Sprint(n)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
	for _, test := range []struct {
		a, b string
		want int32
	}{{"1,3", "2,4", -1}, {"1-4", "3-5", 3}, {"0,5,9", "1-2,9", 9}, {"", "1", -1}, {"x,7", "2,7", 7}} {
		got, shared := sharedIndex(validIntervals(test.a, 10), validIntervals(test.b, 10))
		if !shared {
			got = -1
		}
		if got != test.want {
			t.Errorf("%q and %q share %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	odd := newJob(t, func(s *batchv1.JobSpec) {
		indexed(s)
		s.Completions, s.Parallelism = new(int32(100001)), new(int32(10001))
	})
	odd.Name = "a.b"
	got := Job.Warnings(t.Context(), odd, nil)
	if len(got) != 2 || !strings.Contains(got[0], "a DNS label is recommended") || !strings.HasPrefix(got[1], "spec: In Indexed Jobs") {
		t.Errorf("created: %q", got)
	}
	changed := odd.DeepCopy()
	if got := Job.Warnings(t.Context(), changed, odd); len(got) != 0 {
		t.Errorf("unchanged: %q", got)
	}
	changed.Generation++
	if got := Job.Warnings(t.Context(), changed, odd); len(got) != 1 {
		t.Errorf("changed: %q", got)
	}
}

func cells[T generic.Object](kind generic.Kind[T], obj T, now time.Time) []string {
	var out []string
	for _, column := range kind.Columns {
		cell := column.Cell(obj)
		if timed, ok := cell.(generic.Timed); ok {
			cell = timed(testingclock.NewFakePassiveClock(now))
		}
		out = append(out, fmt.Sprint(cell))
	}
	return out
}

func TestColumns(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(after time.Duration) *metav1.Time { return &metav1.Time{Time: start.Add(after)} }
	is := func(conditions ...batchv1.JobConditionType) []batchv1.JobCondition {
		var out []batchv1.JobCondition
		for _, c := range conditions {
			out = append(out, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
		}
		return out
	}
	for want, change := range map[string]func(*batchv1.Job){
		"Running 1/1 of 3 20s": func(j *batchv1.Job) {
			j.Spec.Completions, j.Spec.Parallelism, j.Status.StartTime = nil, new(int32(3)), at(0)
		},
		"Running 1/1 ": func(j *batchv1.Job) { j.Spec.Completions = nil },
		"Complete 1/1 10s": func(j *batchv1.Job) {
			j.Status.Conditions = is(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
			j.Status.StartTime, j.Status.CompletionTime = at(0), at(10*time.Second)
		},
		"Failed 1/1 ":             func(j *batchv1.Job) { j.Status.Conditions = is(batchv1.JobFailureTarget, batchv1.JobFailed) },
		"Terminating 1/1 ":        func(j *batchv1.Job) { j.Status.Conditions, j.DeletionTimestamp = is(batchv1.JobSuspended), at(0) },
		"Suspended 1/1 ":          func(j *batchv1.Job) { j.Status.Conditions = is(batchv1.JobSuspended) },
		"FailureTarget 1/1 ":      func(j *batchv1.Job) { j.Status.Conditions = is(batchv1.JobFailureTarget) },
		"SuccessCriteriaMet 1/1 ": func(j *batchv1.Job) { j.Status.Conditions = is(batchv1.JobSuccessCriteriaMet) },
	} {
		j := newJob(t, func(*batchv1.JobSpec) {})
		j.Status.Succeeded = 1
		change(j)
		if got := strings.Join(cells(Job, j, start.Add(20*time.Second)), " "); got != want+" c i batch.kubernetes.io/controller-uid=u1" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, change := range map[string]func(*batchv1.CronJob){
		"* * * * * <none> False 0 <none> c i <none>": func(*batchv1.CronJob) {},
		"* * * * * Europe/Rome True 2 20s c i <none>": func(c *batchv1.CronJob) {
			c.Spec.TimeZone, c.Spec.Suspend = new("Europe/Rome"), new(true)
			c.Status.Active, c.Status.LastScheduleTime = make([]corev1.ObjectReference, 2), at(0)
		},
		"* * * * * <none> <unset> 0 <none> c i <none>": func(c *batchv1.CronJob) { c.Spec.Suspend = nil },
	} {
		c := newCronJob(t, func(*batchv1.CronJobSpec) {})
		change(c)
		if got := strings.Join(cells(CronJob, c, start.Add(20*time.Second)), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
