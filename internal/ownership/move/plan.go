// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/finalizer"
)

// Plan is what a move would do.
type Plan struct {
	// ID is the ID of the move; it depends only on the roots.
	ID   string `json:"id"`
	From string `json:"from"`
	To   string `json:"to"`
	// Stage is the stage at which the move starts or continues.
	Stage Stage `json:"stage"`
	// Namespaces are the namespaces to create at the target.
	Namespaces []string  `json:"namespaces,omitempty"`
	Objects    []Planned `json:"objects"`
	// Problems say why the move is refused. Notes are remarks to read before the move.
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Stage is the progress of a move.
type Stage string

const (
	// Copying: nothing was written at the source.
	Copying Stage = "Copy"
	// Removing: all copies are verified, and the originals are being removed.
	Removing Stage = "Remove"
	// Releasing: the originals are removed; holds and marks are being removed.
	Releasing Stage = "Release"
)

// Planned is an object of the plan.
type Planned struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	Root       bool      `json:"root,omitempty"`
	Action     Fate      `json:"action"`
	// Copied is true if the target already has the copy, from an interrupted run.
	Copied bool `json:"copied,omitempty"`
	// Hold says how the copy is paused until the release; Keep says why the source keeps the
	// original.
	Hold string `json:"hold,omitempty"`
	Keep string `json:"keep,omitempty"`
}

func (p *Plan) problem(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// refused has the kinds that never move, and why.
var refused = map[schema.GroupKind]string{
	{Kind: "Namespace"}: "a namespace owns nothing; name the objects in it instead",
	{Kind: "Node"}:      "a node is a machine of its cluster",
	{Kind: "Event"}:     "an event describes what happened in its cluster",
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: "its removal would delete every object of its kind; apply it at the target instead",
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             "it says which server serves a part of its own cluster's API",
}

// Consent has the options for what a move does only on request.
type Consent struct {
	// DropOutsideOwners removes references to owners that do not move.
	DropOutsideOwners bool
	// DropFinalizers removes finalizers that are not Kubernetes' own from the originals before
	// their removal, so that controllers at the source do not clean up what has moved.
	DropFinalizers bool
	// KeepSource keeps the originals.
	KeepSource bool
}

// planOf plans from the graph alone.
func planOf(g *Graph, consent Consent) *Plan {
	p := &Plan{ID: g.ID(), Stage: Copying, Objects: []Planned{}}
	var unheld []schema.GroupKind
	for _, item := range g.Items {
		planned := plannedOf(item)
		if reason, found := refused[item.kind()]; found {
			p.problem("%s does not move: %s", item, reason)
		}
		if item.Object.GetDeletionTimestamp() != nil && item.Fate == Moved {
			p.problem("%s is being deleted; wait until it is gone", item)
		}
		if other := markOf(item.Object); other.Move != "" {
			p.problem("%s came with another move, %s, which is not finished; run that again first", item, other.Move)
		}
		if item.Fate == Moved {
			p.checkOwners(g, item, consent)
			p.checkFinalizers(g, item, consent)
			p.checkClusterAPI(g, item)
			p.checkContent(g, item)
			if isUnheld(item.kind()) && !slices.Contains(unheld, item.kind()) {
				unheld = append(unheld, item.kind())
			}
		}
		p.Objects = append(p.Objects, planned)
	}
	for _, kind := range unheld {
		p.note("%s cannot be paused: a controller at the target acts on the copies as soon as they exist; stop it or the one at the source if both must not run at the same time", strings.ToLower(kind.String()))
	}
	return p
}

func plannedOf(item *Item) Planned {
	planned := Planned{
		APIVersion: item.Object.GetAPIVersion(), Kind: item.Object.GetKind(),
		Namespace: item.Object.GetNamespace(), Name: item.Object.GetName(), UID: item.UID(),
		Root: item.Root, Action: item.Fate,
	}
	if h, found := holdOf(item.kind()); found && item.Fate == Moved {
		planned.Hold = h.says
	}
	return planned
}

func (p *Plan) checkOwners(g *Graph, item *Item, consent Consent) {
	if len(item.Late) > 0 {
		p.note("%s; that reference is added when both exist", g.cycle(item))
	}
	for _, ref := range item.Outside {
		owner := short(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), ref.Name)
		if consent.DropOutsideOwners {
			p.note("%s loses its owner %s, which does not move", item, owner)
			continue
		}
		p.problem("%s is also owned by %s, which does not move: name that too, or use --drop-outside-owners to move it without this reference", item, owner)
	}
}

func (p *Plan) checkFinalizers(g *Graph, item *Item, consent Consent) {
	finalizers := finalizer.Foreign(item.Object)
	if len(finalizers) == 0 || consent.KeepSource || g.rests(item) {
		return
	}
	list := strings.Join(finalizers, ", ")
	if consent.DropFinalizers {
		p.note("%s loses its finalizers at the source before it is removed: %s", item, list)
		return
	}
	p.problem("%s has the finalizer %s: when it is removed at the source, the controller there would clean up what has moved; stop that controller and use --drop-finalizers, or use --keep-source", item, list)
}

// checkContent notes what does not move with an object.
func (p *Plan) checkContent(g *Graph, item *Item) {
	switch item.kind() {
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		volume, _, _ := unstructured.NestedString(item.Object.Object, "spec", "volumeName")
		if volume != "" && !g.moves(schema.GroupKind{Kind: "PersistentVolume"}, "", volume) {
			p.note("the data of %s does not move: the target provisions a new, empty volume; to move the volume, name persistentvolume/%s as well, if the target can reach its storage", item, volume)
		}
	case schema.GroupKind{Kind: "Service"}:
		p.note("%s gets new addresses and node ports from the target", item)
	}
}

// keepAtSource returns why an original is not removed, or "". Claims and volumes stay if their
// removal would delete data, which a move does not copy.
func keepAtSource(ctx context.Context, c *Cluster, object *unstructured.Unstructured) (string, error) {
	volume := object
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "PersistentVolume"}:
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		name, _, _ := unstructured.NestedString(object.Object, "spec", "volumeName")
		if name == "" {
			return "", nil
		}
		ref := Ref{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"}, Name: name}
		var err error
		if volume, err = c.get(ctx, ref.object()); err != nil {
			return "", err
		}
		if volume == nil {
			return "", nil
		}
	default:
		return "", nil
	}
	policy, _, _ := unstructured.NestedString(volume.Object, "spec", "persistentVolumeReclaimPolicy")
	if policy == "Retain" {
		return "", nil
	}
	return fmt.Sprintf("its volume's reclaim policy is %s: removing it would remove the data", policy), nil
}
