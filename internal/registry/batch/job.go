// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Job runs pods until the desired number has succeeded.
var Job = generic.Kind[*batchv1.Job]{
	Name: "Job", Plural: "jobs", Categories: []string{"all"},
	New:     func() *batchv1.Job { return &batchv1.Job{} },
	NewList: func() runtime.Object { return &batchv1.JobList{} },
	Spec:    func(j *batchv1.Job) any { return &j.Spec },
	Status:  func(j *batchv1.Job) any { return &j.Status },
	Prepare: prepareJob,

	Validate:       validateJob,
	ValidateUpdate: validateJobUpdate,
	StatusUpdate:   generic.Update[*batchv1.Job]{Validate: validateJobStatus},
	Warnings: func(_ context.Context, j, old *batchv1.Job) []string {
		if old == nil {
			return append(nameWarnings(j.Name), specWarnings(&j.Spec, field.NewPath("spec"))...)
		}
		if j.Generation == old.Generation {
			return nil
		}
		return specWarnings(&j.Spec, field.NewPath("spec"))
	},

	// By default the deletion of a Job orphans its pods, for historical reasons.
	Deletion:  generic.Deletion[*batchv1.Job]{OrphanByDefault: func(schema.GroupVersion) bool { return true }},
	Endpoints: generic.Endpoints{Replace: func(store *generic.Store) rest.Storage { return &jobStore{store} }},

	Fields: map[string]func(*batchv1.Job) string{
		"status.successful": func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) },
	},
	Columns: append([]generic.Column[*batchv1.Job]{
		{Name: "Status", Description: "Status of the job.", Cell: jobState},
		{Name: "Completions", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"], Cell: jobCompletions},
		{Name: "Duration", Description: "Time required to complete the job.", Cell: jobDuration},
	}, templateColumns(func(j *batchv1.Job) *batchv1.JobSpec { return &j.Spec })...),
}

func prepareJob(ctx context.Context, j, old *batchv1.Job) {
	dropAlphaFields(ctx, j, old, func(j *batchv1.Job) *batchv1.JobSpec { return &j.Spec })
	if old == nil && !ptr.Deref(j.Spec.ManualSelector, false) {
		generateSelector(j)
	}
}

// dropAlphaFields clears fields of features that are disabled in Kubernetes v1.37.
func dropAlphaFields[T any](ctx context.Context, obj, old T, spec func(T) *batchv1.JobSpec) {
	spec(obj).Scheduling = nil
	podspec.DropAlphaTemplateFields(ctx, obj, old, func(obj T) *corev1.PodTemplateSpec { return &spec(obj).Template })
}

// The labels of a Job's pods, with the newer prefix and without.
var (
	uidLabels  = []string{"controller-uid", batchv1.ControllerUidLabel}
	nameLabels = []string{"job-name", batchv1.JobNameLabel}
)

// generateSelector labels the template with the Job's name and UID and selects by the UID, so that
// two Jobs never share a pod. It keeps existing labels, which validation refuses.
func generateSelector(j *batchv1.Job) {
	labels := &j.Spec.Template.Labels
	for _, key := range nameLabels {
		addLabel(labels, key, j.Name)
	}
	for _, key := range uidLabels {
		addLabel(labels, key, string(j.UID))
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	addLabel(&j.Spec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(j.UID))
}

func addLabel(labels *map[string]string, key, value string) {
	if *labels == nil {
		*labels = map[string]string{}
	}
	if _, found := (*labels)[key]; !found {
		(*labels)[key] = value
	}
}

// nameWarnings warns about a name that is unsuitable as a prefix of pod names.
func nameWarnings(name string) []string {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", problems)}
	}
	return nil
}

func specWarnings(spec *batchv1.JobSpec, path *field.Path) []string {
	var warnings []string
	if isIndexed(spec) && ptr.Deref(spec.Completions, 0) > manyCompletions && ptr.Deref(spec.Parallelism, 0) > maxParallelismOfMany {
		warnings = append(warnings, fmt.Sprintf("%s: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail", path))
	}
	return append(warnings, podspec.TemplateWarnings(&spec.Template, path.Child("template"))...)
}

// jobStore warns that a deletion orphans pods, unless the request has a propagation policy.
type jobStore struct{ *generic.Store }

const orphanWarning = "child pods are preserved by default when jobs are deleted; " +
	"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"

func (s *jobStore) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	warnOfOrphans(ctx, options)
	return s.Store.Delete(ctx, name, validate, options)
}

func (s *jobStore) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *internalversion.ListOptions) (runtime.Object, error) {
	warnOfOrphans(ctx, options)
	return s.Store.DeleteCollection(ctx, validate, options, list)
}

func warnOfOrphans(ctx context.Context, options *metav1.DeleteOptions) {
	if options != nil && options.PropagationPolicy == nil && options.OrphanDependents == nil { //nolint:staticcheck // deprecated, and still accepted
		warning.AddWarning(ctx, "", orphanWarning)
	}
}

// jobState returns the first state, final ones first, that applies to the Job.
func jobState(j *batchv1.Job) any {
	switch {
	case reports(j, batchv1.JobComplete):
		return "Complete"
	case reports(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	}
	for _, state := range []batchv1.JobConditionType{batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if reports(j, state) {
			return string(state)
		}
	}
	return "Running"
}

// reports reports whether the first condition of the type is true.
func reports(j *batchv1.Job, condition batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == condition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func jobCompletions(j *batchv1.Job) any {
	if wanted := j.Spec.Completions; wanted != nil {
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *wanted)
	}
	if parallelism := ptr.Deref(j.Spec.Parallelism, 0); parallelism > 1 {
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job) any {
	start, end := j.Status.StartTime, j.Status.CompletionTime
	switch {
	case start == nil:
		return ""
	case end == nil:
		return generic.Timed(func(c clock.PassiveClock) string { return duration.HumanDuration(c.Since(start.Time)) })
	}
	return duration.HumanDuration(end.Sub(start.Time))
}

// templateColumns are the columns of the template in wide output.
func templateColumns[T generic.Object](spec func(T) *batchv1.JobSpec) []generic.Column[T] {
	return []generic.Column[T]{
		{Name: "Containers", Wide: true, Description: "Names of each container in the template.", Cell: func(obj T) any { return core.ContainerNames(spec(obj).Template.Spec) }},
		{Name: "Images", Wide: true, Description: "Images referenced by each container in the template.", Cell: func(obj T) any { return core.ContainerImages(spec(obj).Template.Spec) }},
		{Name: "Selector", Wide: true, Description: batchv1.JobSpec{}.SwaggerDoc()["selector"], Cell: func(obj T) any { return metav1.FormatLabelSelector(spec(obj).Selector) }},
	}
}
