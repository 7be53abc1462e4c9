// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package generic holds what all built-in kinds share. A kind is one value, a Kind, that declares
// only what differs between kinds: names, validation, columns, subresources. Everything else
// (create, update, patch, apply, delete, status, scale, tables, storage) is implemented here, once.
//
// The versioned Go types of k8s.io/api are also the internal types: a Kind works on *corev1.Pod
// itself, without conversions between a request and the store.
package generic

import (
	"context"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Object is any typed API object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind declares one built-in kind. Most fields are optional, and their zero value is the common
// case: a ConfigMap needs only names and validation.
type Kind[T Object] struct {
	// Name is the kind in manifests ("Deployment"); Plural and Singular are the resource's names in
	// URLs and commands. An empty Singular is the lower-cased Name.
	Name, Plural, Singular string
	ShortNames             []string
	Categories             []string
	// ClusterScoped kinds have no namespace.
	ClusterScoped bool

	New     func() T
	NewList func() runtime.Object

	// Metadata relaxes or tightens the validation of metadata.
	Metadata Metadata

	// Spec and Status point into an object. A kind with a Spec has a
	// generation; a kind with a Status serves the status subresource, and a
	// write to one never touches the other (API conventions, "Spec and Status").
	Spec   func(obj T) any
	Status func(obj T) any
	// Generation selects the changes that increment metadata.generation.
	Generation Generation
	// CreatedWithStatus keeps the status of a new object, for kinds that
	// register themselves (Node).
	CreatedWithStatus bool

	// Prepare normalises an object before it is validated; old is the zero T
	// on create. It must not hide what validation would refuse.
	Prepare func(ctx context.Context, obj, old T)
	// Resets names the fields besides the status that Prepare restores from old.
	Resets []string

	// Validate checks a new object, ValidateUpdate a change; both report errors to c. The
	// strategy checks metadata. A nil ValidateUpdate means Validate on the new object.
	Validate       func(ctx context.Context, c *check.Checker, obj T)
	ValidateUpdate func(ctx context.Context, c *check.Checker, obj, old T)
	// ShortCircuits tells the strategy that the declared validation stops at the first error of a
	// field, while the hand-written one continues (an immutable roleRef).
	ShortCircuits bool
	// Warnings are sent to the client with an accepted write; old is the zero T
	// on create.
	Warnings func(ctx context.Context, obj, old T) []string

	// StatusUpdate holds the rules of the status subresource. Its Prepare runs
	// after the spec has been restored from old.
	StatusUpdate Update[T]
	// Updates are the other subresources, by name, that change a part of the
	// object (namespaces/finalize).
	Updates map[string]Update[T]
	// Scale serves the scale subresource.
	Scale *Scale[T]

	// CreateOnUpdate lets a PUT create a missing object.
	CreateOnUpdate bool
	// RequireResourceVersion refuses updates without a resourceVersion.
	RequireResourceVersion bool

	// Fields are the selectable fields beyond metadata.name and
	// metadata.namespace.
	Fields         map[string]func(obj T) string
	FieldSelection FieldSelection

	// Columns are what `kubectl get` shows between NAME and AGE.
	Columns []Column[T]
	Table   Table[T]

	Deletion Deletion[T]

	// Hooks run around storage writes, for resources that are allocated before a
	// write and released after it (a Service's addresses).
	Hooks Hooks[T]

	Endpoints Endpoints
}

// Metadata declares how a kind's metadata is validated.
type Metadata struct {
	// ValidName checks metadata.name; nil means a DNS subdomain (RFC 1123).
	ValidName validation.ValidateNameFunc
	// Loose reports whether a request's metadata is not validated, except that the name is a valid
	// path segment (Events, which are named after objects of any kind).
	Loose func(ctx context.Context) bool
	// AnyFinalizer accepts unqualified finalizers that are not Kubernetes' own;
	// set where upstream does not refuse them.
	AnyFinalizer bool
	// ValidateAsNew validates changed metadata by all rules for new metadata,
	// such as that of generateName.
	ValidateAsNew bool
}

// Generation selects the changes of an object that increment metadata.generation.
type Generation int

const (
	// SpecOnly counts changes of the spec.
	SpecOnly Generation = iota
	// SpecAndAnnotations also counts changes of annotations, for kinds whose
	// controller copies them to its children.
	SpecAndAnnotations
	// NoGeneration is for the old kinds that have none (Namespace, Service).
	NoGeneration
)

// FieldSelection refines how field selectors work.
type FieldSelection struct {
	// Indexed names the Fields that the watch cache indexes.
	Indexed []string
	// Renamed maps older names of fields, which selectors may still use.
	Renamed map[string]string
	// NamespaceUnselectable refuses metadata.namespace, as upstream does for a
	// few namespaced kinds.
	NamespaceUnselectable bool
}

// Table refines what `kubectl get` prints.
type Table[T Object] struct {
	// ColumnsOnly prints the Columns without NAME and AGE (Events).
	ColumnsOnly bool
	// Default prints name and creation time, as upstream does for kinds without
	// a printer (Role). Columns are ignored.
	Default bool
	// NameCell replaces the name in column NAME (a class that is the default is
	// marked).
	NameCell func(obj T) any
	// AfterAge are columns behind AGE (a Node's VERSION).
	AfterAge []Column[T]
	// RowConditions mark rows of finished objects.
	RowConditions func(obj T) []metav1.TableRowCondition
}

// Deletion declares how objects of a kind are deleted.
type Deletion[T Object] struct {
	// OrphanByDefault reports whether a deletion in a version of the API that names no
	// propagation policy keeps dependents. Nil means that they are deleted.
	OrphanByDefault func(gv schema.GroupVersion) bool
	// Unowned kinds take no part in garbage collection (Events).
	Unowned bool
	// Grace reports whether the object is deleted gracefully, and if so sets the
	// period in the options. Nil means immediately.
	Grace func(ctx context.Context, obj T, options *metav1.DeleteOptions) bool
	// ReturnObject answers a DELETE with the deleted object, as the oldest kinds
	// do. Other kinds answer with a Status.
	ReturnObject bool
	// TTL is how many seconds the store keeps the object; 0 means no expiry.
	TTL uint64
	// HasFinalizers reports whether the object has finalizers outside of its
	// metadata (a Namespace's spec.finalizers), which delay its removal too.
	HasFinalizers func(obj T) bool
}

// Endpoints declares what a kind serves beside the standard verbs.
type Endpoints struct {
	// Replace wraps the kind's main endpoint, for the few kinds whose verbs
	// differ (a Namespace is deleted in two steps). The wrapper embeds the Store.
	Replace func(store *Store) rest.Storage
	// Subresources are further subresources by name; Siblings are other resources for the same
	// objects (bindings).
	Subresources func(store *Store) map[string]rest.Storage
	Siblings     func(store *Store) map[string]rest.Storage
}

// Update declares a subresource that shows the whole object and changes a part
// of it.
type Update[T Object] struct {
	// Prepare restores from old what this subresource must not change.
	Prepare  func(ctx context.Context, obj, old T)
	Validate func(ctx context.Context, c *check.Checker, obj, old T)
	Warnings func(ctx context.Context, obj, old T) []string
	// Resets names the fields that Prepare restores ("status",
	// "metadata.ownerReferences"): server-side apply must not own them through
	// this subresource.
	Resets []string
	// WriteOnly subresources serve only PUT.
	WriteOnly bool
}
