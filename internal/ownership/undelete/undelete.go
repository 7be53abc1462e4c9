// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// Cluster is the cluster that an undeletion works on.
type Cluster struct {
	History deletion.History
	Records deletion.Records
	// Resources returns the served resources whose objects can have owners.
	Resources func() []graph.Resource
	// Owner returns an object from the garbage collector's graph.
	Owner func(uid types.UID) (graph.Object, bool)
	// Served returns the resource that serves a kind.
	Served func(kind schema.GroupKind) (graph.Resource, bool)
	// Objects reads with permission to read everything; Caller writes as the caller.
	Objects, Caller dynamic.Interface
	// May returns nil if the caller may use a verb on an object, or, without a name, on all
	// objects. Otherwise it returns the reason.
	May func(ctx context.Context, verb string, r graph.Resource, subresource, namespace, name string) error
	// Seen reports whether the controllers' caches have reached a resourceVersion of a kind, and
	// whether they cache the kind at all. Kinds that they do not cache count as seen.
	Seen  func(kind schema.GroupKind, resourceVersion string) (seen, known bool)
	Clock clock.WithTicker
}

// Request names the object to restore.
type Request struct {
	Resource        graph.Resource
	Namespace, Name string
	// UID selects one of the deleted objects of that name; by default the last one.
	UID types.UID
	// At is the time whose state is restored; by default just before the deletion.
	At time.Time
	// DryRun prevents all writes.
	DryRun bool
	// Work limits the time for writes, after the graph is read and checked. Zero means as long as
	// the request may take. An undeletion may always write for four times as long as it read, so
	// that most of the time goes into progress.
	Work time.Duration
}

// Report is the result of an undeletion.
type Report struct {
	Phase ownership.UndeletionPhase
	// Deletion is the deletion that is undone, and Revision the revision whose state is restored.
	Deletion deletion.Record
	Revision int64
	// Items are the objects of the graph, owners first.
	Items              []*Item
	Problems, Warnings []string
	// Waiting says what an incomplete undeletion without problems waits for, if it is more than
	// the next request.
	Waiting string
}

// Item is an object of the graph.
type Item struct {
	Resource graph.Resource
	// then is the object before the deletion, now the current object of that name; nil if there
	// is none.
	then, now *unstructured.Unstructured
	// fields are then's managedFields as JSON. As a tree they would take more memory than the
	// rest of the object, and a graph may be large.
	fields []byte
	// owners are the item's owners in the graph, and the namespace or definition that it was
	// content of.
	owners []*Item
	// lineage is shared by all items.
	lineage *lineage
	// reclaims are references that an earlier undeletion could not restore, and this one does.
	reclaims []deletion.LostReference
	// deletedOnItsOwn is true if a client requested its deletion after that of the root.
	deletedOnItsOwn bool
	// needs is an item that is not an owner, but without which a controller would delete this
	// one; nil if there is none.
	needs *Item
	// afterword is added to the reason.
	afterword string
	// binding is set for a claim that was bound to a volume.
	binding *binding
	step    step

	Outcome ownership.UndeletionOutcome
	Reason  string
}

// newItem returns an item for a former object.
func newItem(r graph.Resource, then *unstructured.Unstructured) *Item {
	then = withoutHold(then)
	return &Item{Resource: r, then: withoutFields(then), fields: fieldsOf(then)}
}

// setNow sets the current object of the item's name. It drops the managedFields of a restored
// object, because its release sets them again.
func (i *Item) setNow(now *unstructured.Unstructured) {
	if now != nil && now.GetUID() != i.FormerUID() {
		now = withoutFields(now)
	}
	i.now = now
}

// Namespace returns the object's namespace.
func (i *Item) Namespace() string { return i.then.GetNamespace() }

// Name returns the object's name.
func (i *Item) Name() string { return i.then.GetName() }

// FormerUID returns the object's UID before the deletion.
func (i *Item) FormerUID() types.UID { return i.then.GetUID() }

// Owners returns the former UIDs of the item's owners in the graph, and of the namespace or
// definition that it was content of.
func (i *Item) Owners() (uids []types.UID) {
	for _, owner := range i.owners {
		uids = append(uids, owner.FormerUID())
	}
	return uids
}

// UID returns the UID of the current object of the item's name; "" if there is none.
func (i *Item) UID() types.UID {
	if i.now == nil {
		return ""
	}
	return i.now.GetUID()
}

// IsHeld reports whether the object is restored and still on hold.
func (i *Item) IsHeld() bool { return isRestored(i) }

func (i *Item) kind() schema.GroupKind { return i.then.GroupVersionKind().GroupKind() }

func (i *Item) String() string {
	if i.Namespace() == "" {
		return i.then.GetKind() + " " + i.Name()
	}
	return i.then.GetKind() + " " + i.Namespace() + "/" + i.Name()
}

// limit is the time that one request works: k8s.io/apiserver gives up on a create after 34 s
// (endpoints/handlers.requestTimeoutUpperBound).
const limit = 30 * time.Second

// undeletion is an undeletion in progress.
type undeletion struct {
	*Cluster
	Request
	past
	report *Report
	items  []*Item
	root   *Item
	// named has the items by kind, namespace and name.
	named map[objectKey]*Item
	// members has the items by the origins of their UIDs.
	members map[types.UID]*Item
	lineage *lineage
	// recorded has the UIDs of the successors that were recorded before the plan read the current
	// objects. Other successors come from concurrent undeletions.
	recorded map[types.UID]bool
	// outside maps the UIDs of deleted objects outside the graph, and of their successors, to the
	// current UIDs.
	outside map[types.UID]types.UID
	// before is the earlier restoration of a root that exists; nil if there was none.
	before       *deletion.Restoration
	began, until time.Time
	// reading is the time that it took to read the graph.
	reading   time.Duration
	postponed postponed
}

// objectKey identifies an object by kind, namespace and name.
type objectKey struct {
	kind            schema.GroupKind
	namespace, name string
}

// Run undoes a deletion, as far as the time of one request allows.
func (c *Cluster) Run(ctx context.Context, request Request) (*Report, error) {
	now := c.Clock.Now()
	u := &undeletion{Cluster: c, Request: request, report: &Report{}, began: now, until: now.Add(limit)}
	u.lineage, u.outside = &lineage{}, map[types.UID]types.UID{}
	if err := u.findDeletion(ctx); err != nil {
		return nil, err
	}
	u.lineage.root, u.lineage.state = u.uid, u.revision
	u.report.Deletion, u.report.Revision = u.record, u.revision
	u.report.Deletion.UID = u.uid // A deletion without a record has no UID.
	if u.before != nil {
		u.reportBefore()
		return u.report, nil
	}
	unpin, err := u.History.Pin(ctx, u.revision)
	if err != nil {
		return nil, u.explainExpired(err)
	}
	if err := u.run(ctx); err != nil {
		return u.report, u.explainExpired(err)
	}
	if u.report.Phase != ownership.UndeletionIncomplete { // The next request needs that revision.
		unpin()
	}
	return u.report, nil
}

// run plans and executes the undeletion, and sets the phase of the report.
func (u *undeletion) run(ctx context.Context) error {
	if err := u.plan(ctx); err != nil {
		return err
	}
	switch {
	case len(u.report.Problems) > 0 && u.stage == fresh:
		u.report.Phase = ownership.UndeletionRefused
		return nil
	case len(u.report.Problems) > 0:
		u.report.Phase = ownership.UndeletionIncomplete
		return nil
	case u.DryRun:
		u.report.Phase = ownership.UndeletionPlanned
		return nil
	}
	u.limitWork()
	done, err := u.execute(ctx)
	u.reportPostponed()
	u.report.Phase = ownership.UndeletionIncomplete
	if done {
		u.report.Phase = ownership.UndeletionComplete
	}
	return err
}

// limitWork limits the time for writes to what the request asks for.
func (u *undeletion) limitWork() {
	if u.Work == 0 {
		return
	}
	now := u.Clock.Now()
	if end := now.Add(max(u.Work, 4*u.reading)); end.Before(u.until) {
		u.until = end
	}
}

// explainExpired explains what is left to do by hand if an undeletion has started and its revision
// was compacted since. It returns other errors unchanged.
func (u *undeletion) explainExpired(err error) error {
	if u.stage == fresh || !apierrors.IsResourceExpired(err) {
		return err
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("the undeletion cannot continue, because the former state is no longer known: %v; "+
		"restored objects stay on hold until their annotation %s is removed, and from pods the scheduling gate of that name", err, ownership.HoldAnnotation))
}

// plan reads the graph and decides the outcome of each item. It writes nothing.
func (u *undeletion) plan(ctx context.Context) error {
	if err := u.read(ctx); err != nil {
		return err
	}
	if err := u.loadRecorded(ctx); err != nil {
		return err
	}
	if err := u.readCurrent(ctx); err != nil {
		return err
	}
	if err := u.loadLineage(ctx); err != nil {
		return err
	}
	u.index()
	if err := u.reclaim(ctx); err != nil {
		return err
	}
	if err := u.resolve(ctx); err != nil {
		return err
	}
	u.reading = u.Clock.Since(u.began)
	own, err := u.ownDeletions(ctx)
	if err != nil {
		return err
	}
	u.report.Items = u.items
	problems := decideOutcomes(u.items, u.root, own, u.stage)
	for _, item := range u.items {
		if problem, found := problems[item]; found {
			u.reportBlocker(ctx, item, problem)
		}
	}
	if len(u.report.Problems) > 0 {
		return nil
	}
	if err := u.leaveUnviable(ctx); err != nil {
		return err
	}
	if err := u.decideBindings(ctx); err != nil || len(u.report.Problems) > 0 {
		return err
	}
	u.explainMachines()
	u.reportLost()
	// Check access even when resuming: the caller may be another user than the one who started the
	// undeletion, and any user can write marks.
	u.checkAccess(ctx)
	if u.stage != fresh {
		return nil
	}
	return u.check(ctx)
}

// execute restores the graph and releases it. It reports whether the undeletion is complete.
func (u *undeletion) execute(ctx context.Context) (bool, error) {
	if u.stage != releasing {
		if complete, err := u.restoreAndRecord(ctx); !complete || err != nil {
			return false, err
		}
		if seen, err := u.awaitCaches(ctx); !seen || err != nil {
			u.report.Waiting = "all objects are restored; they are released once the controllers have observed them"
			return false, err
		}
	}
	return u.release(ctx)
}

// restoreAndRecord restores the graph and records the restored objects. It repeats both if another
// undeletion ran at the same time: that one may have restored an owner or a dependent of the graph
// after this one had looked it up. Each undeletion records its objects before it reads the other
// records, so that of two concurrent undeletions at least one finds the other.
func (u *undeletion) restoreAndRecord(ctx context.Context) (bool, error) {
	for {
		if complete, err := u.restoreAll(ctx); !complete || err != nil {
			return false, err
		}
		if err := u.recordRestored(ctx); err != nil {
			return false, err
		}
		concurrent, err := u.hasConcurrent(ctx)
		if !concurrent || err != nil {
			return err == nil, err
		}
		u.stage = restoring
		if err := u.plan(ctx); err != nil || len(u.report.Problems) > 0 {
			return false, err
		}
	}
}

// restoreAll restores the graph. It reports whether all objects are restored. If the root is a
// definition, its custom resources can be read and
// created only when the API serves the kind again.
func (u *undeletion) restoreAll(ctx context.Context) (bool, error) {
	if u.root.kind() != definitionKind || u.isServed(ctx) {
		return u.restore(ctx)
	}
	if complete, err := u.restore(ctx); !complete || err != nil {
		return false, err
	}
	served, err := u.await(ctx, func() bool { return u.isServed(ctx) })
	if !served || err != nil {
		u.report.Waiting = "the definition is restored; its objects follow once the API serves the kind"
		return false, err
	}
	u.stage = restoring
	if err := u.plan(ctx); err != nil || len(u.report.Problems) > 0 {
		return false, err
	}
	return u.restore(ctx)
}

// isServed reports whether the kind that the root defines is served and its history can be read.
func (u *undeletion) isServed(ctx context.Context) bool {
	for _, r := range u.Resources() {
		if r.GroupResource().String() != u.Name {
			continue
		}
		for _, err := range u.History.List(ctx, r.GroupResource(), "", u.revision) {
			return err == nil
		}
		return true
	}
	return false
}

// reportBlocker reports a problem with an item. It does not name the item if the caller may not
// read it.
func (u *undeletion) reportBlocker(ctx context.Context, item *Item, problem string) {
	if u.May(ctx, "get", item.Resource, "", item.Namespace(), item.Name()) == nil {
		u.problem("%s %s", item, problem)
		return
	}
	if hidden := "an object that you may not read prevents it"; !slices.Contains(u.report.Problems, hidden) {
		u.problem("%s", hidden)
	}
}

// isLate reports whether the time of the request is over.
func (u *undeletion) isLate() bool { return u.lateFor(0) }

// lateFor reports whether less time than rest is left.
func (u *undeletion) lateFor(rest time.Duration) bool {
	return !u.Clock.Now().Add(rest).Before(u.until)
}
