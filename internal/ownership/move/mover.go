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

// Options say what moves from where to where.
type Options struct {
	// Source and Roots, or FromDirectory.
	Source        *Cluster
	Roots         []Ref
	FromDirectory string
	// Target, or ToDirectory, which leaves the source as it is.
	Target      *Cluster
	ToDirectory string

	Consent
	// Progress hears what is being done. It may be nil.
	Progress func(doing string)
}

// Mover carries out one move: Plan, and then Run.
type Mover struct {
	Options
	source source

	plan  *Plan
	graph *Graph
	// uids is what became of the UIDs of the graph at the target, copied the digests of
	// what this process has copied.
	uids   map[types.UID]types.UID
	copied map[types.UID]string
	// roots are those of the graph, whether the source still has them or not.
	roots []Ref
	// copies are the objects at the target, once they are verified, owners first.
	copies []*unstructured.Unstructured
	// touched are objects at the target to which marks of copies were handed on, when an
	// interrupted run is gone on with.
	touched []*unstructured.Unstructured
	// namespaces are those found to have been created for the move.
	namespaces []string
	report     Report
}

// Report is what was done.
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

// New is a move that has not begun.
func New(options Options) (*Mover, error) {
	m := &Mover{Options: options, uids: map[types.UID]types.UID{}, copied: map[types.UID]string{}}
	if m.Progress == nil {
		m.Progress = func(string) {}
	}
	if m.Source != nil {
		m.source = &live{m.Source, dedupe(m.Roots)}
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

// Plan reads both sides and writes nothing; what the target is asked to create, it creates
// as a dry run.
func (m *Mover) Plan(ctx context.Context) (*Plan, error) {
	m.Progress("reading the graph")
	g, missing, err := m.source.read(ctx)
	if err != nil {
		return nil, err
	}
	if m.Target == nil {
		return m.planForDirectory(g, missing)
	}
	m.roots = rootsOf(g, missing)
	begun, err := m.findAnchor(ctx, m.roots, missing)
	if err != nil {
		return nil, err
	}
	if stage := begun.resumes(missing); stage != Copying {
		return m.planToEnd(ctx, begun, stage)
	}
	if len(missing) > 0 {
		return nil, m.absent(ctx, missing)
	}
	m.graph, m.plan = g, planOf(g, m.Consent)
	m.plan.From, m.plan.To = m.source.String(), m.Target.Name
	if err := m.planSource(ctx); err != nil {
		return nil, err
	}
	if err := m.planTarget(ctx); err != nil {
		return nil, err
	}
	return m.plan, nil
}

// rootsOf are the roots that were found, and those that were not.
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

// absent says of roots that the source has not whether a move that was interrupted in its
// very last moment may be why.
func (m *Mover) absent(ctx context.Context, missing []Ref) error {
	err := notFound(m.source.String(), missing)
	for _, ref := range missing {
		stored, failed := m.Target.get(ctx, ref.object())
		if failed != nil || stored == nil {
			return err
		}
	}
	return fmt.Errorf("%w; %s has what is named so, and no move of it is under way: it may have been moved already", err, m.Target.Name)
}

func notFound(where string, missing []Ref) error {
	return fmt.Errorf("not found in %s: %s", where, names(missing))
}

func (m *Mover) planForDirectory(g *Graph, missing []Ref) (*Plan, error) {
	if len(missing) > 0 {
		return nil, notFound(m.source.String(), missing)
	}
	m.KeepSource = true
	m.graph, m.plan = g, planOf(g, m.Consent)
	m.plan.From, m.plan.To = m.source.String(), m.ToDirectory
	m.plan.note("the source stays as it is")
	if err := mayWriteDirectory(m.ToDirectory); err != nil {
		m.plan.problem("%v", err)
	}
	return m.plan, nil
}

// ErrRefused is a plan with problems.
var ErrRefused = errors.New("the move is refused, and nothing was changed")

// Run carries out the plan. What it did before an error, it says as well. Run again, with
// the same roots, it goes on.
func (m *Mover) Run(ctx context.Context) (*Report, error) {
	if len(m.plan.Problems) > 0 {
		return &m.report, ErrRefused
	}
	if m.Target == nil {
		m.Progress("writing " + m.ToDirectory)
		return &m.report, m.writeDirectory()
	}
	if m.plan.Stage == Copying {
		if err := m.copyUntilStill(ctx); err != nil {
			return &m.report, err
		}
		if err := m.setStage(ctx, Removing); err != nil {
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

// rounds is how often a graph that changes is copied again.
const rounds = 8

// copyUntilStill copies, and reads the source again until it has nothing that is not copied.
func (m *Mover) copyUntilStill(ctx context.Context) error {
	if err := m.makeNamespaces(ctx); err != nil {
		return err
	}
	for range rounds {
		if err := m.copy(ctx); err != nil {
			return err
		}
		changed, err := m.readAgain(ctx)
		if err != nil {
			return err
		}
		if changed {
			continue
		}
		return m.verify(ctx)
	}
	return fmt.Errorf("%s keeps changing what is to move; stop the controllers that do it, and run the same command again", m.source)
}

// readAgain reads the source, and says whether there is anything new to copy.
func (m *Mover) readAgain(ctx context.Context) (bool, error) {
	m.Progress("reading the graph again")
	g, missing, err := m.source.read(ctx)
	if err != nil {
		return false, err
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("%w; it went while it was being copied: remove the copies in %s, whose annotations say move %s", notFound(m.source.String(), missing), m.Target.Name, m.plan.ID)
	}
	plan := planOf(g, m.Consent)
	if len(plan.Problems) > 0 {
		return false, fmt.Errorf("%s has changed, and what changed does not move: %s", m.source, strings.Join(plan.Problems, "; "))
	}
	for _, item := range m.graph.moved() {
		if !g.copied(item.UID()) {
			return false, fmt.Errorf("%s went at the source while it was being copied; remove its copy in %s, and run the same command again", item, m.Target.Name)
		}
	}
	m.graph = g
	return slices.ContainsFunc(g.moved(), func(item *Item) bool { return m.copied[item.UID()] != m.digestOf(item) }), nil
}

// digestOf also knows the owners, which decide what is sent, unlike digest.
func (m *Mover) digestOf(item *Item) string {
	return strings.Join(append(ownersOf(item.Object), digest(item.Object, m.graph.moves)), "\n")
}
