// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package generic is what all built-in kinds share. A kind is one value, a
// Kind, that says only what is special about it: names, defaults, validation,
// columns, subresources. Everything else (create, update, patch, apply, delete,
// status, scale, tables, storage) stands here once.
//
// The versioned Go types of k8s.io/api are also the internal types: a Kind
// works on *corev1.Pod itself, and no conversion lies between a request and
// the store.
package generic

import (
	"context"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Object is what every API object is: typed, with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind declares one built-in kind. The zero value of each optional field means
// "nothing special": a ConfigMap needs only names and its validation.
type Kind[T Object] struct {
	// Name is the kind as manifests spell it ("Deployment"); Plural and
	// Singular are the resource's names in URLs and commands. An empty
	// Singular is the lower-cased Name.
	Name, Plural, Singular string
	ShortNames             []string
	Categories             []string
	// ClusterScoped kinds live outside of namespaces.
	ClusterScoped bool

	New     func() T
	NewList func() runtime.Object

	// ValidName checks metadata.name; nil means a DNS subdomain (RFC 1123).
	ValidName validation.ValidateNameFunc
	// LooseMetadata says that only what no object could do without is asked of an
	// object's metadata: a name that fits into a path (Events, which are named
	// after other objects, of any kind).
	LooseMetadata func(ctx context.Context) bool
	// AnyFinalizer accepts finalizers without a domain that are not Kubernetes'
	// own; it is set where upstream forgot to refuse them.
	AnyFinalizer bool
	// MetadataAnew holds changed metadata to all the rules of new metadata, such
	// as that of generateName.
	MetadataAnew bool

	// Spec and Status point into an object. A kind with a Spec has a
	// generation that grows when its spec changes; a kind with a Status serves
	// the status subresource, and a write to one never touches the other (API
	// conventions, "Spec and Status").
	Spec   func(obj T) any
	Status func(obj T) any

	// CreatedWithStatus keeps the status that a new object comes with, for kinds
	// which register themselves (Node).
	CreatedWithStatus bool
	// WithoutGeneration is for the old kinds whose spec changes are not counted
	// (Namespace, Node, Service).
	WithoutGeneration bool
	// GenerationFromAnnotations also grows the generation when annotations
	// change, for kinds whose controller copies them to its children.
	GenerationFromAnnotations bool

	// Prepare normalises an object before it is validated; old is the zero T
	// on create. It must not hide what validation would refuse.
	Prepare func(ctx context.Context, obj, old T)
	// Resets names the fields besides the status that Prepare puts back from old.
	Resets []string
	// PrepareStatus is Prepare for writes to the status subresource, where the
	// spec has been put back already. StatusResets names what else it puts back.
	PrepareStatus func(ctx context.Context, obj, old T)
	StatusResets  []string

	// Validate checks a new object, ValidateUpdate a change, ValidateStatus a
	// change through the status subresource. Metadata is checked by the
	// strategy. A nil ValidateUpdate means Validate on the new object.
	Validate       func(ctx context.Context, obj T) field.ErrorList
	ValidateUpdate func(ctx context.Context, obj, old T) field.ErrorList
	ValidateStatus func(ctx context.Context, obj, old T) field.ErrorList

	// ShortCircuits says that a declared validation stops at the first error of a
	// field where the hand-written ones go on (an immutable roleRef).
	ShortCircuits bool

	// Warnings are sent to the client beside an accepted write; old is the
	// zero T on create. StatusWarnings are those of the status subresource.
	Warnings       func(ctx context.Context, obj, old T) []string
	StatusWarnings func(ctx context.Context, obj, old T) []string

	// Fields are the selectable fields beyond metadata.name and
	// metadata.namespace; Indexed names those which the watch cache indexes.
	// Renamed maps older names of fields, which selectors may still use.
	// NamespaceUnselectable leaves metadata.namespace out, as upstream forgot it.
	Fields                map[string]func(obj T) string
	Indexed               []string
	Renamed               map[string]string
	NamespaceUnselectable bool

	// Columns are what `kubectl get` shows between NAME and AGE; where
	// WholeTable is set they are the whole table (Events).
	Columns    []Column[T]
	WholeTable bool
	// PlainTable shows name and time of creation alone, as the kinds do that
	// never got columns (Role).
	PlainTable bool
	// NameCell is what the column NAME says where that is more than the name (of
	// a class, whether it is the default).
	NameCell func(obj T) any
	// ColumnsAfterAge follow AGE (a Node's VERSION).
	ColumnsAfterAge []Column[T]
	// RowConditions mark rows of which nothing more is to be expected.
	RowConditions func(obj T) []metav1.TableRowCondition

	// Scale serves the scale subresource.
	Scale *Scale[T]

	// CreateOnUpdate lets a PUT create what is missing.
	CreateOnUpdate bool
	// RequireResourceVersion refuses updates that name no resourceVersion.
	RequireResourceVersion bool

	// OrphanByDefault keeps dependents when a deletion names no policy.
	// Unset, they go too.
	OrphanByDefault func(ctx context.Context) bool
	// Unowned kinds take no part in garbage collection at all (Events).
	Unowned bool

	// Grace decides whether the object is deleted gracefully, and sets the
	// period in the options if so. Nil means at once.
	Grace func(ctx context.Context, obj T, options *metav1.DeleteOptions) bool

	// ReturnDeleted answers a DELETE with the object that went, as the oldest
	// kinds do. Others answer with a Status.
	ReturnDeleted bool

	// TTL is how many seconds the store keeps the object; 0 is for ever.
	TTL uint64

	// Held keeps an object that is being deleted although no finalizer in its
	// metadata holds it any more (a Namespace with spec.finalizers).
	Held func(obj T) bool

	// Hooks run around storage writes, for what must be claimed elsewhere
	// first and released after (a Service's addresses).
	Hooks Hooks[T]

	// Replace wraps the kind's own endpoint, for the few kinds whose verbs
	// differ (a Namespace is deleted in two steps). The wrapper embeds the Store.
	Replace func(store *Store) rest.Storage

	// Updates are the subresources, by name, through which the same object
	// changes under rules of their own (namespaces/finalize).
	Updates map[string]Update[T]

	// Subresources are all others, by name; Siblings are resources of other
	// names that work on the same objects (bindings).
	Subresources func(store *Store) map[string]rest.Storage
	Siblings     func(store *Store) map[string]rest.Storage
}

// Update is a subresource that shows the whole object and changes a part of it.
type Update[T Object] struct {
	// Prepare puts back from old what this subresource must not change.
	Prepare  func(ctx context.Context, obj, old T)
	Validate func(ctx context.Context, obj, old T) field.ErrorList
	Warnings func(ctx context.Context, obj, old T) []string
	// Resets names the fields that Prepare puts back ("status",
	// "metadata.ownerReferences"): server-side apply must not own them through
	// this subresource.
	Resets []string
	// WriteOnly subresources serve PUT alone.
	WriteOnly bool
}
