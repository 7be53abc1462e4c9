// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/undelete"
)

func validateUndeletion(review *ownership.Undeletion) field.ErrorList {
	errs := validateObject(review.Spec.Object, field.NewPath("spec", "object"))
	if seconds := review.Spec.TimeoutSeconds; seconds < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "timeoutSeconds"), seconds, "must not be negative"))
	}
	return errs
}

// undelete restores a deleted object.
func (q *question) undelete(ctx context.Context, spec *ownership.UndeletionSpec) (ownership.UndeletionStatus, error) {
	r, err := q.served(spec.Object.APIVersion, spec.Object.Kind)
	if err != nil {
		return ownership.UndeletionStatus{}, err
	}
	if err := inPlace(r, spec.Object.Namespace, true); err != nil {
		return ownership.UndeletionStatus{}, err
	}
	if err := q.access.require(ctx, "get", r, spec.Object.Namespace, spec.Object.Name); err != nil {
		return ownership.UndeletionStatus{}, err
	}
	caller, err := dynamic.NewForConfig(q.ConfigFor(q.access.caller, undeleteAgent))
	if err != nil {
		return ownership.UndeletionStatus{}, err
	}
	cluster := undelete.Cluster{
		History: q.History, Records: q.Records, Resources: q.watched, Owner: q.object, Served: q.servedAs,
		Objects: q.Objects, Caller: caller, May: q.access.requireOf, Seen: q.Seen, Clock: q.Clock,
	}
	request := undelete.Request{
		Resource: r, Namespace: spec.Object.Namespace, Name: spec.Object.Name, UID: spec.Object.UID,
		DryRun: spec.DryRun || q.dryRun, Work: time.Duration(spec.TimeoutSeconds) * time.Second,
	}
	if spec.At != nil {
		request.At = spec.At.Time
	}
	report, err := cluster.Run(ctx, request)
	if err != nil {
		return ownership.UndeletionStatus{}, err
	}
	return q.reported(ctx, r, report), nil
}

// reported converts a report to a status. It omits objects that the caller may not read.
func (q *question) reported(ctx context.Context, r graph.Resource, report *undelete.Report) ownership.UndeletionStatus {
	e := explanation{question: q}
	undone := e.deletion(ctx, r, report.Deletion)
	s := ownership.UndeletionStatus{
		Phase: report.Phase, Deletion: &undone, ResourceVersion: strconv.FormatInt(report.Revision, 10),
		Problems: report.Problems, Warnings: report.Warnings, Waiting: report.Waiting,
	}
	mayGet := func(item *undelete.Item) bool {
		return q.access.mayGet(ctx, item.Resource, item.Namespace(), item.Name())
	}
	for _, item := range report.Items {
		if !mayGet(item) {
			continue
		}
		result := ownership.UndeletionResult{
			Object: ownership.ObjectReference{
				APIVersion: item.Resource.GroupVersion().String(), Kind: item.Resource.Kind,
				Namespace: item.Namespace(), Name: item.Name(), UID: item.UID(),
			},
			FormerUID: item.FormerUID(), Owners: item.Owners(), Outcome: item.Outcome, Reason: item.ReasonFor(mayGet),
		}
		if report.Phase == ownership.UndeletionPlanned && item.Outcome == ownership.UndeletionPending {
			result.Outcome = ownership.UndeletionRestored
		}
		s.Results = append(s.Results, result)
		if item.IsHeld() {
			s.Held++
		}
		switch result.Outcome {
		case ownership.UndeletionRestored:
			s.Restored++
		case ownership.UndeletionAdopted:
			s.Adopted++
		case ownership.UndeletionLeft, ownership.UndeletionTaken:
			s.Left++
		case ownership.UndeletionDenied:
			s.Denied++
		case ownership.UndeletionPending:
			s.Pending++
		}
	}
	return s
}

// watched returns the resources that the collector watches.
func (q *question) watched() (resources []graph.Resource) {
	q.Collector.View(func(g *graph.Graph) {
		for _, r := range g.Resources() {
			if r.Watched {
				resources = append(resources, r)
			}
		}
	})
	return resources
}

func (q *question) object(uid types.UID) (object graph.Object, known bool) {
	q.Collector.View(func(g *graph.Graph) { object, known = g.Object(uid) })
	return object, known
}

// servedAs returns the resource that serves a kind.
func (q *question) servedAs(kind schema.GroupKind) (r graph.Resource, served bool) {
	q.Collector.View(func(g *graph.Graph) { r, served = g.Served(kind) })
	return r, served
}

func validateHistory(review *ownership.DeletionHistory) field.ErrorList {
	if object := review.Spec.Object; object != nil {
		return validateKind(object.APIVersion, object.Kind, field.NewPath("spec", "object"))
	}
	return nil
}

// history lists the deletions that can be undone.
func (q *question) history(ctx context.Context, spec *ownership.DeletionHistorySpec) (ownership.DeletionHistoryStatus, error) {
	var s ownership.DeletionHistoryStatus
	if err := q.mayAskFor(ctx, spec); err != nil {
		return s, err
	}
	oldest, err := q.History.Oldest(ctx)
	if err != nil {
		return s, err
	}
	if since := q.History.Time(oldest); !since.IsZero() {
		s.Since = &metav1.Time{Time: since}
	}
	requested, err := q.Records.Requested(ctx, oldest+1)
	if err != nil {
		return s, err
	}
	served := map[string]graph.Resource{}
	for _, r := range q.watched() {
		served[r.GroupResource().String()] = r
	}
	begun := map[types.UID]deletion.Record{}
	for _, record := range requested {
		begun[record.UID] = record
	}
	followed := func(record deletion.Record) bool {
		return slices.ContainsFunc(record.References, func(ref metav1.OwnerReference) bool {
			owner, known := begun[ref.UID]
			return known && owner.Precedes(record) && record.Follows(owner.Policy)
		})
	}
	var ended []ending
	for _, record := range requested {
		r, known := served[record.Resource.String()]
		switch {
		case !known || !isSelected(spec, r, record):
		case followed(record), kindOf(record.By) == ownership.AgentController, kindOf(record.By) == ownership.AgentNode, kindOf(record.By) == ownership.AgentServer:
			// It was a consequence of another deletion or state, and would happen again.
		case !q.access.mayGet(ctx, r, record.Namespace, record.Name):
			s.Hidden++
		default:
			ended = append(ended, ending{r, record})
		}
	}
	existing, err := q.existing(ctx, ended)
	if err != nil {
		return s, err
	}
	e := explanation{question: q}
	for _, one := range ended {
		if !existing[one.name()] { // Otherwise it was restored, or another object has its name.
			s.Deletions = append(s.Deletions, e.deletion(ctx, one.resource, one.record))
		}
	}
	return s, nil
}

// mayAskFor returns an error if the spec names an object that the caller may not get: the number of
// hidden objects would disclose that it existed.
func (q *question) mayAskFor(ctx context.Context, spec *ownership.DeletionHistorySpec) error {
	o := spec.Object
	if o == nil || o.Name == "" && o.UID == "" {
		return nil
	}
	r, err := q.served(o.APIVersion, o.Kind)
	if err != nil {
		return err
	}
	return q.access.require(ctx, "get", r, cmp.Or(o.Namespace, spec.Namespace), o.Name)
}

// isSelected reports whether the spec selects a deletion.
func isSelected(spec *ownership.DeletionHistorySpec, r graph.Resource, record deletion.Record) bool {
	if spec.Namespace != "" && record.Namespace != spec.Namespace {
		return false
	}
	o := spec.Object
	if o == nil {
		return true
	}
	kind := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
	return kind.Group == r.Group && kind.Kind == r.Kind &&
		(o.Namespace == "" || o.Namespace == record.Namespace) && (o.Name == "" || o.Name == record.Name) && (o.UID == "" || o.UID == record.UID)
}
