// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/metadata"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/lint"
)

// The reasons why a finding is skipped.
const (
	notListed  = "the object is not listed in the preconditions"
	hasChanged = "the object has changed since it was checked"
	isGone     = "the object was deleted"
)

func validateRepair(review *ownership.OwnershipRepair) field.ErrorList {
	errs := validateLintSpec(&review.Spec.OwnershipLintSpec)
	path := field.NewPath("spec", "preconditions")
	seen := map[types.UID]bool{}
	for i, p := range review.Spec.Preconditions {
		switch {
		case p.UID == "":
			errs = append(errs, field.Required(path.Index(i).Child("uid"), ""))
		case seen[p.UID]:
			errs = append(errs, field.Duplicate(path.Index(i).Child("uid"), p.UID))
		}
		if p.ResourceVersion == "" {
			errs = append(errs, field.Required(path.Index(i).Child("resourceVersion"), ""))
		}
		seen[p.UID] = true
	}
	return errs
}

// repair applies the fixes, with one write for each object.
func (q *question) repair(ctx context.Context, spec *ownership.OwnershipRepairSpec) (ownership.OwnershipRepairStatus, error) {
	found, err := q.inspect(ctx, &spec.OwnershipLintSpec)
	if err != nil {
		return ownership.OwnershipRepairStatus{}, err
	}
	client, err := metadata.NewForConfig(q.ConfigFor(q.access.caller, repairAgent))
	if err != nil {
		return ownership.OwnershipRepairStatus{}, err
	}
	r := repairer{question: q, client: client, spec: spec, dryRun: q.dryRun || spec.DryRun}
	s := ownership.OwnershipRepairStatus{Checked: found.checked, Hidden: found.hidden, Warnings: found.warnings}
	for rest := found.findings; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Object == rest[0].Object {
			n++
		}
		s.Results = append(s.Results, r.mend(ctx, rest[:n])...)
		rest = rest[n:]
	}
	for _, result := range s.Results {
		if result.Outcome == ownership.RepairSkipped {
			s.Skipped++
		} else {
			s.Applied++
		}
	}
	r.settle(ctx)
	return s, nil
}

// repairer repairs objects.
type repairer struct {
	*question
	client  metadata.Interface
	spec    *ownership.OwnershipRepairSpec
	dryRun  bool
	written []written
}

// written is a repaired object and the API's response.
type written struct {
	object *lint.Object
	answer *metav1.PartialObjectMetadata
}

// mend applies the fixes of one object's findings.
func (r *repairer) mend(ctx context.Context, findings []lint.Finding) []ownership.RepairResult {
	object := findings[0].Object
	refs, fixes := referencesOf(object), 0
	for _, f := range findings {
		if f.Fix != nil {
			refs, fixes = f.Fix.Apply(refs), fixes+1
		}
	}
	outcome, reason := ownership.RepairSkipped, r.refusal(object)
	if reason == "" && fixes > 0 {
		outcome, reason = r.write(ctx, object, refs)
	}
	results := make([]ownership.RepairResult, len(findings))
	for i := range findings {
		results[i] = ownership.RepairResult{LintFinding: findingOf(&findings[i]), Outcome: outcome, Reason: reason}
		if findings[i].Fix == nil {
			results[i].Outcome, results[i].Reason = ownership.RepairSkipped, results[i].Unfixed()
		}
	}
	return results
}

// refusal returns why the preconditions exclude an object, or "".
func (r *repairer) refusal(o *lint.Object) string {
	if len(r.spec.Preconditions) == 0 {
		return ""
	}
	for _, p := range r.spec.Preconditions {
		switch {
		case p.UID != o.UID:
		case p.ResourceVersion != o.ResourceVersion:
			return hasChanged
		default:
			return ""
		}
	}
	return notListed
}

// write writes owner references as the caller, with the resourceVersion that they were computed
// from as a precondition.
func (r *repairer) write(ctx context.Context, o *lint.Object, refs []metav1.OwnerReference) (ownership.RepairOutcome, string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "resourceVersion": o.ResourceVersion, "ownerReferences": refs,
	}})
	if err != nil {
		return ownership.RepairSkipped, err.Error()
	}
	options, outcome := metav1.PatchOptions{}, ownership.RepairApplied
	if r.dryRun {
		options.DryRun, outcome = []string{metav1.DryRunAll}, ownership.RepairWouldApply
	}
	answer, err := r.client.Resource(o.GroupVersionResource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, options)
	switch {
	case apierrors.IsConflict(err):
		return ownership.RepairSkipped, hasChanged
	case apierrors.IsNotFound(err):
		return ownership.RepairSkipped, isGone
	case err != nil:
		return ownership.RepairSkipped, err.Error()
	}
	if !r.dryRun {
		r.written = append(r.written, written{o, answer})
	}
	return outcome, ""
}

// settle waits until the collector has observed the writes, so that a later lint does not report
// repaired findings again. It is best effort.
func (r *repairer) settle(ctx context.Context) {
	for _, w := range r.written {
		if _, err := r.await(ctx, w.object.Resource, w.answer); err != nil {
			return
		}
	}
}
