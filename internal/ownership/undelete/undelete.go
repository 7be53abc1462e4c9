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

// Cluster is what an undeletion works on.
type Cluster struct {
	History deletion.History
	Records deletion.Records
	// Resources are those that are served now and whose objects have owners.
	Resources func() []graph.Resource
	// Owner is an object as the garbage collector knows it.
	Owner func(uid types.UID) (graph.Object, bool)
	// Served returns the resource that a kind is served as.
	Served func(kind schema.GroupKind) (graph.Resource, bool)
	// Objects reads as one who may read everything; Caller writes as who asks.
	Objects, Caller dynamic.Interface
	// May is why who asks may not use a verb on an object; without a name, on any.
	May func(ctx context.Context, verb string, r graph.Resource, subresource, namespace, name string) error
	// Seen is whether the controllers have seen the objects of a kind as of a resourceVersion,
	// and whether they look at any. Those that they do not look at count as seen.
	Seen  func(kind schema.GroupKind, resourceVersion string) (seen, known bool)
	Clock clock.WithTicker
}

// Request says what is to be brought back.
type Request struct {
	Resource        graph.Resource
	Namespace, Name string
	// UID is which one of those that had the name, if not the last.
	UID types.UID
	// At is when it was as it shall be again; zero for just before the deletion.
	At time.Time
	// DryRun has nothing written.
	DryRun bool
	// Work is how long to write, once the graph is read and tried; zero for as long as a request
	// may take. An undeletion writes for at least four times as long as it read, so that most of
	// the time goes into that.
	Work time.Duration
}

// Report is what was done.
type Report struct {
	Phase ownership.UndeletionPhase
	// Deletion is the one that is undone, and Revision that of the state that is brought back.
	Deletion deletion.Record
	Revision int64
	// Items are the graph, owners first.
	Items              []*Item
	Problems, Warnings []string
	// Waiting is what an undeletion that is incomplete without a problem waits for, if it is not
	// only for time.
	Waiting string
}

// Item is an object of the graph.
type Item struct {
	Resource graph.Resource
	// then is the object as it was, now the one of its name as it is; nil if there is none.
	then, now *unstructured.Unstructured
	// fields are who applied which field of then, its managedFields as JSON: as a tree they take
	// more memory than all the rest, and a graph may be large.
	fields []byte
	// owners are those of its owners that are in the graph, and what it was the content of.
	owners []*Item
	// lineage is shared by all items.
	lineage *lineage
	// reclaims are references that an earlier undeletion could not restore, and this one does.
	reclaims []deletion.LostReference
	// deletedOnItsOwn reports that a deletion after that of the root asked for it.
	deletedOnItsOwn bool
	// needs is the item that this one does not outlive, though it is not its owner; nil if there
	// is none.
	needs *Item
	// binding is that of a claim which was bound to a volume.
	binding *binding
	step    step

	Outcome ownership.UndeletionOutcome
	Reason  string
}

// newItem is an item of an object as it was.
func newItem(r graph.Resource, then *unstructured.Unstructured) *Item {
	then = unheld(then)
	return &Item{Resource: r, then: withoutFields(then), fields: fieldsOf(then)}
}

// find notes what has the item's name now. Who applied which field is not asked for of what was
// restored: its release says that again.
func (i *Item) find(now *unstructured.Unstructured) {
	if now != nil && now.GetUID() != i.FormerUID() {
		now = withoutFields(now)
	}
	i.now = now
}

// Namespace, Name and FormerUID say which object it was.
func (i *Item) Namespace() string    { return i.then.GetNamespace() }
func (i *Item) Name() string         { return i.then.GetName() }
func (i *Item) FormerUID() types.UID { return i.then.GetUID() }

// Owners are the former UIDs of its owners in the graph, and of what it was the content of.
func (i *Item) Owners() (uids []types.UID) {
	for _, owner := range i.owners {
		uids = append(uids, owner.FormerUID())
	}
	return uids
}

// UID is that of the object which has its place now; "" if none has.
func (i *Item) UID() types.UID {
	if i.now == nil {
		return ""
	}
	return i.now.GetUID()
}

// IsHeld is whether the object was created and is still on hold.
func (i *Item) IsHeld() bool { return isRestored(i) }

func (i *Item) kind() schema.GroupKind { return i.then.GroupVersionKind().GroupKind() }

func (i *Item) String() string {
	name := i.then.GetKind() + " " + i.Name()
	if i.Namespace() != "" {
		return i.then.GetKind() + " " + i.Namespace() + "/" + i.Name()
	}
	return name
}

// limit is how long one request works: the library gives up on a create after 34 s
// (endpoints/handlers.requestTimeoutUpperBound).
const limit = 30 * time.Second

// undeletion is one that is under way.
type undeletion struct {
	*Cluster
	Request
	past
	report *Report
	items  []*Item
	root   *Item
	// named are the items by what they are called.
	named map[name]*Item
	// members are the items by the origins of their UIDs.
	members map[types.UID]*Item
	lineage *lineage
	// known are the successors that were known when the undeletion was planned.
	known map[types.UID]deletion.Restoration
	// outside are the UIDs that deleted objects outside of the graph had, and those that their
	// successors have now.
	outside map[types.UID]types.UID
	// before is the earlier restoration of a root that is there; nil if there was none.
	before       *deletion.Restoration
	began, until time.Time
	// reading is how long the graph took to read.
	reading   time.Duration
	postponed postponed
}

// name is what an object is called.
type name struct {
	kind            schema.GroupKind
	namespace, name string
}

// Run undoes a deletion, as far as it gets in the time of a request.
func (c *Cluster) Run(ctx context.Context, request Request) (*Report, error) {
	now := c.Clock.Now()
	u := &undeletion{Cluster: c, Request: request, report: &Report{}, began: now, until: now.Add(limit)}
	u.lineage, u.outside = &lineage{}, map[types.UID]types.UID{}
	if err := u.find(ctx); err != nil {
		return nil, err
	}
	u.lineage.root, u.lineage.state = u.uid, u.revision
	u.report.Deletion, u.report.Revision = u.record, u.revision
	u.report.Deletion.UID = u.uid // It may not be recorded.
	if u.before != nil {
		u.reportBefore()
		return u.report, nil
	}
	unpin, err := u.History.Pin(ctx, u.revision)
	if err != nil {
		return nil, u.tooLate(err)
	}
	if err := u.run(ctx); err != nil {
		return u.report, u.tooLate(err)
	}
	if u.report.Phase != ownership.UndeletionIncomplete { // The next request goes on at that revision.
		unpin()
	}
	return u.report, nil
}

// run does what is to be done, and says how far it came.
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
	u.budget()
	done, err := u.carryOut(ctx)
	u.tellPostponed()
	u.report.Phase = ownership.UndeletionIncomplete
	if done {
		u.report.Phase = ownership.UndeletionComplete
	}
	return err
}

// budget ends the work earlier than the request, if that was asked for.
func (u *undeletion) budget() {
	if u.Work == 0 {
		return
	}
	now := u.Clock.Now()
	if end := now.Add(max(u.Work, 4*u.reading)); end.Before(u.until) {
		u.until = end
	}
}

// tooLate says of an undeletion that has begun, and whose state is not retained any more, what
// is left to be done.
func (u *undeletion) tooLate(err error) error {
	if u.stage == fresh || !apierrors.IsResourceExpired(err) {
		return err
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("the undeletion cannot go on, as what there was is not known any more: %v; "+
		"what is back stays on hold until its annotation %s is taken off, and of pods the scheduling gate of that name", err, ownership.HoldAnnotation))
}

// plan reads the graph and decides what becomes of it. Nothing is written.
func (u *undeletion) plan(ctx context.Context) error {
	if err := u.read(ctx); err != nil {
		return err
	}
	if err := u.look(ctx); err != nil {
		return err
	}
	if err := u.recognise(ctx); err != nil {
		return err
	}
	u.known = u.lineage.restored
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
	problems := judge(u.items, u.root, own, u.stage)
	for _, item := range u.items {
		if problem, found := problems[item]; found {
			u.standsInTheWay(ctx, item, problem)
		}
	}
	if len(u.report.Problems) > 0 {
		return nil
	}
	if err := u.leaveDoomed(ctx); err != nil {
		return err
	}
	if err := u.bind(ctx); err != nil || len(u.report.Problems) > 0 {
		return err
	}
	u.tellLost()
	// Who goes on may be another than who began, and marks are written by anybody.
	u.checkAccess(ctx)
	if u.stage != fresh {
		return nil
	}
	return u.check(ctx)
}

// carryOut restores the graph and releases it; false if that is not done yet.
func (u *undeletion) carryOut(ctx context.Context) (bool, error) {
	if u.stage != releasing {
		if whole, err := u.restoreWithOthers(ctx); !whole || err != nil {
			return false, err
		}
		if seen, err := u.settle(ctx); !seen || err != nil {
			u.report.Waiting = "everything is there; it is released once the controllers have seen it"
			return false, err
		}
	}
	return u.release(ctx)
}

// restoreWithOthers restores the graph and records that, and does so again if it was not the only
// one: another undeletion may have restored an owner or a dependent of the graph after this one
// had looked for it. Each undeletion records what it restored and then reads what others did, so
// that of two at the same time one finds the other.
func (u *undeletion) restoreWithOthers(ctx context.Context) (bool, error) {
	for {
		if whole, err := u.restoreAll(ctx); !whole || err != nil {
			return false, err
		}
		if err := u.remember(ctx); err != nil {
			return false, err
		}
		others, err := u.foundOthers(ctx)
		if !others || err != nil {
			return err == nil, err
		}
		u.stage = restoring
		if err := u.plan(ctx); err != nil || len(u.report.Problems) > 0 {
			return false, err
		}
	}
}

// restoreAll restores the graph. The objects of a kind can be read and created once its
// definition is there again.
func (u *undeletion) restoreAll(ctx context.Context) (bool, error) {
	if u.root.kind() != definitionKind || u.isServed(ctx) {
		return u.restore(ctx)
	}
	if whole, err := u.restore(ctx); !whole || err != nil {
		return false, err
	}
	served, err := u.await(ctx, func() bool { return u.isServed(ctx) })
	if !served || err != nil {
		u.report.Waiting = "the definition is there; its objects follow once the API serves them"
		return false, err
	}
	u.stage = restoring
	if err := u.plan(ctx); err != nil || len(u.report.Problems) > 0 {
		return false, err
	}
	return u.restore(ctx)
}

// isServed is whether the kind that the root defines is served, and its past can be read.
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

// standsInTheWay tells of a problem with an item, and nothing of what it is to who may not read it.
func (u *undeletion) standsInTheWay(ctx context.Context, item *Item, problem string) {
	if u.May(ctx, "get", item.Resource, "", item.Namespace(), item.Name()) == nil {
		u.problem("%s %s", item, problem)
		return
	}
	if hidden := "an object that you may not read stands in the way"; !slices.Contains(u.report.Problems, hidden) {
		u.problem("%s", hidden)
	}
}

func (u *undeletion) late() bool { return u.lateFor(0) }

// lateFor is whether less than a time is left.
func (u *undeletion) lateFor(rest time.Duration) bool {
	return !u.Clock.Now().Add(rest).Before(u.until)
}
