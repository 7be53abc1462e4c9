// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Options are the options of a move.
type Options struct {
	// Either Source and Roots, or FromDirectory.
	Source        *Cluster
	Roots         []Ref
	FromDirectory string
	// Either Target, or ToDirectory, which does not change the source.
	Target      *Cluster
	ToDirectory string

	Consent
	// Progress is called with a description of each step. It may be nil.
	Progress func(doing string)
}

// Mover carries out one move: Plan, and then Run.
type Mover struct {
	Options
	source source

	plan  *Plan
	graph *Graph
	// uids maps UIDs of the source to UIDs at the target; copied has the digests of what this
	// process has copied.
	uids   map[types.UID]types.UID
	copied map[types.UID]string
	// roots are the roots of the graph, whether the source still has them or not.
	roots []Ref
	// copies are the verified copies at the target, owners first.
	copies []*unstructured.Unstructured
	// touched are other objects at the target that have copied marks, found when an interrupted
	// move is continued.
	touched []*unstructured.Unstructured
	// namespaces are the namespaces that were created for the move.
	namespaces []string
	report     Report
}

// Report is the result of a move.
type Report struct {
	Copied  int    `json:"copied"`
	Removed int    `json:"removed"`
	Kept    []Kept `json:"kept,omitempty"`
}

// Kept is an object that the source still has, and why.
type Kept struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// New returns a Mover for a move that has not started.
func New(options Options) (*Mover, error) {
	m := &Mover{Options: options, uids: map[types.UID]types.UID{}, copied: map[types.UID]string{}}
	if m.Progress == nil {
		m.Progress = func(string) {}
	}
	if m.Source != nil {
		m.source = &live{m.Source, dedupe(m.Roots), anyGroup}
		return m, nil
	}
	stored, err := readDirectory(m.FromDirectory)
	if err != nil {
		return nil, err
	}
	m.source, m.KeepSource = stored, true
	return m, nil
}

func dedupe(refs []Ref) []Ref {
	var unique []Ref
	for _, ref := range refs {
		if !slices.Contains(unique, ref) {
			unique = append(unique, ref)
		}
	}
	return unique
}

// Plan reads both clusters and returns the plan. It writes nothing, but creates the copies at the
// target as a dry run.
func (m *Mover) Plan(ctx context.Context) (*Plan, error) {
	m.Progress("reading the graph")
	g, missing, err := m.source.read(ctx)
	if err != nil {
		return nil, err
	}
	if m.Target == nil {
		return m.planForDirectory(ctx, g, missing)
	}
	m.roots = rootsOf(g, missing)
	begun, err := m.findAnchor(ctx, m.roots, missing)
	if err != nil {
		return nil, err
	}
	if stage := begun.resumes(g, missing); stage != Copying {
		return m.planRest(ctx, begun, stage)
	}
	if len(missing) > 0 {
		return nil, m.absent(ctx, missing)
	}
	m.graph, m.plan = g, planOf(g, m.Consent)
	m.plan.From, m.plan.To = m.source.String(), m.Target.Name
	if err := m.planClusterAPI(ctx); err != nil {
		return nil, err
	}
	if err := m.planSource(ctx); err != nil {
		return nil, err
	}
	if err := m.planTarget(ctx); err != nil {
		return nil, err
	}
	return m.plan, m.planStale(ctx)
}

// rootsOf returns the roots that were found, and the missing ones.
func rootsOf(g *Graph, missing []Ref) []Ref {
	roots := slices.Clone(missing)
	if g == nil {
		return roots
	}
	for _, item := range g.Items {
		if item.Root {
			roots = append(roots, Ref{item.Object.GroupVersionKind(), item.Object.GetNamespace(), item.Object.GetName()})
		}
	}
	return roots
}

// absent returns the error for missing roots. It checks whether an earlier, interrupted move
// explains why they are missing.
func (m *Mover) absent(ctx context.Context, missing []Ref) error {
	err := notFound(m.source.String(), missing)
	for _, ref := range missing {
		stored, failed := m.Target.get(ctx, ref.object())
		if failed != nil || stored == nil {
			return err
		}
		if own := markOf(stored); own.Move != "" {
			return fmt.Errorf("%w; %s has a copy of it, on hold, which came with move %s: that move was interrupted before it removed anything, so another client has deleted the object, and the copy may be the only one left", err, m.Target.Name, own.Move)
		}
	}
	return fmt.Errorf("%w; %s has an object of that name, and no move of it is in progress: it may have been moved already", err, m.Target.Name)
}

func notFound(where string, missing []Ref) error {
	return fmt.Errorf("not found in %s: %s", where, names(missing))
}

func (m *Mover) planForDirectory(ctx context.Context, g *Graph, missing []Ref) (*Plan, error) {
	if len(missing) > 0 {
		return nil, notFound(m.source.String(), missing)
	}
	m.KeepSource = true
	m.graph, m.plan = g, planOf(g, m.Consent)
	m.plan.From, m.plan.To = m.source.String(), m.ToDirectory
	if err := m.planClusterAPI(ctx); err != nil {
		return nil, err
	}
	if len(g.pausable()) > 0 {
		m.plan.note("the source stays as it is; its Clusters are paused while they are read")
	} else {
		m.plan.note("the source stays as it is")
	}
	if err := checkEmptyDirectory(m.ToDirectory); err != nil {
		m.plan.problem("%v", err)
	}
	return m.plan, nil
}

// ErrRefused is returned for a plan with problems.
var ErrRefused = errors.New("the move is refused, and nothing was changed")

// Run carries out the plan. If it fails, the report says what was done; the same command continues
// the move.
func (m *Mover) Run(ctx context.Context) (*Report, error) {
	if len(m.plan.Problems) > 0 {
		return &m.report, ErrRefused
	}
	if m.Target == nil {
		return &m.report, m.storePaused(ctx)
	}
	if m.plan.Stage == Copying {
		if err := m.copyPaused(ctx); err != nil {
			return &m.report, err
		}
	}
	if m.plan.Stage != Releasing && !m.KeepSource {
		if err := m.remove(ctx); err != nil {
			return &m.report, err
		}
	}
	if err := m.setStage(ctx, Releasing); err != nil {
		return &m.report, err
	}
	return &m.report, m.release(ctx)
}

// storePaused writes the directory while the source is paused.
func (m *Mover) storePaused(ctx context.Context) error {
	err := m.pause(ctx)
	if err == nil {
		m.Progress("writing " + m.ToDirectory)
		err = m.writeDirectory()
	}
	return errors.Join(err, m.resume(ctx))
}

// copyPaused copies while the source is paused. If it fails, nothing was removed, and the source continues.
func (m *Mover) copyPaused(ctx context.Context) error {
	err := m.pause(ctx)
	if err == nil {
		err = m.copyUntilUnchanged(ctx)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, m.resume(ctx))
}

// rounds is the maximum number of times that a changing graph is copied.
const rounds = 8

// copyUntilUnchanged copies until a reading of the source finds nothing that is not copied, and
// verifies the copies. If it finds that the removal has started, it sets the stage of the plan
// accordingly.
func (m *Mover) copyUntilUnchanged(ctx context.Context) error {
	if err := m.makeNamespaces(ctx); err != nil {
		return err
	}
	for range rounds {
		if err := m.copy(ctx); err != nil {
			return err
		}
		changed, err := m.readAgain(ctx)
		if err != nil || m.plan.Stage != Copying {
			return err
		}
		if changed {
			continue
		}
		if err := m.verify(ctx); err != nil {
			return err
		}
		return m.setStage(ctx, Removing)
	}
	return fmt.Errorf("%s keeps changing the objects to move; stop the controllers that change them", m.source)
}

// readAgain reads the source again and reports whether anything has to be copied.
func (m *Mover) readAgain(ctx context.Context) (bool, error) {
	m.Progress("reading the graph again")
	g, missing, err := m.source.read(ctx)
	if err != nil {
		return false, err
	}
	if begun, err := m.hasStartedRemoval(ctx, g, missing); begun || err != nil {
		return false, err
	}
	if len(missing) > 0 {
		return false, m.stale(notFound(m.source.String(), missing).Error() + ": it was deleted while it was being copied")
	}
	plan := planOf(g, m.Consent)
	if len(plan.Problems) > 0 {
		return false, fmt.Errorf("%s has changed, and the changed graph cannot move: %s", m.source, strings.Join(plan.Problems, "; "))
	}
	for _, item := range m.graph.moved() {
		if g.copied(item.UID()) {
			continue
		}
		reason, err := m.whyNotMoved(ctx, item.Object, item.UID())
		if err != nil {
			return false, err
		}
		return false, errors.New(reason)
	}
	m.graph = g
	return slices.ContainsFunc(g.moved(), func(item *Item) bool { return m.copied[item.UID()] != m.digestOf(item) }), nil
}

// hasStartedRemoval reports whether this move is already removing roots: a request of an interrupted
// run took effect, or the command runs twice. The copies were verified before, so the plan
// continues from there.
func (m *Mover) hasStartedRemoval(ctx context.Context, g *Graph, missing []Ref) (bool, error) {
	if len(missing) == 0 && len(g.leavingRoots()) == 0 {
		return false, nil
	}
	stored, err := m.Target.get(ctx, anchorRef(m.roots).object())
	begun := readAnchor(stored)
	if err != nil || begun.move != m.plan.ID {
		return false, err
	}
	m.plan.Stage = begun.stage
	return true, m.findCopies(ctx, namespacesOf(m.roots))
}

// stale returns the error for an object that was deleted before all copies were verified. This move
// has removed nothing until then, so the copy may be the only one left.
func (m *Mover) stale(what string) error {
	return fmt.Errorf("%s, and not by this move, which has removed nothing yet. %s has a copy, on hold, with an annotation %s... that names move %s; it may be the only copy: remove it only if the object was deleted on purpose", what, m.Target.Name, markDomain, m.plan.ID)
}

// whyNotMoved explains why an object that was copied is no longer part of the graph.
func (m *Mover) whyNotMoved(ctx context.Context, like *unstructured.Unstructured, uid types.UID) (string, error) {
	now, err := m.Source.get(ctx, like)
	if err != nil {
		return "", err
	}
	if now == nil || now.GetUID() != uid {
		return m.stale(describe(like) + " was deleted at the source while it was being copied").Error(), nil
	}
	return fmt.Sprintf("%s is no longer owned by an object that moves, and the source still has it: remove its copy in %s, which is on hold", describe(like), m.Target.Name), nil
}

// digestOf is like digest, but includes the owners, which are sent too.
func (m *Mover) digestOf(item *Item) string {
	return strings.Join(append(ownersOf(item.Object), digest(item.Object, m.graph.moves)), "\n")
}
