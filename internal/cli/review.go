// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// reviewer sends ownership reviews to a cluster.
type reviewer struct {
	config    *rest.Config
	client    rest.Interface
	mapper    meta.RESTMapper
	namespace string
}

func (c *connection) reviewer(cmd *cobra.Command) (*reviewer, error) {
	loader, err := c.loader(cmd)
	if err != nil {
		return nil, err
	}
	r := &reviewer{}
	if r.config, err = configOf(loader); err != nil {
		return nil, err
	}
	if r.namespace, _, err = loader.Namespace(); err != nil {
		return nil, err
	}
	if r.mapper, err = mapperOf(r.config); err != nil {
		return nil, err
	}
	r.client, err = reviewClient(r.config)
	return r, err
}

// reviewClient returns a client of the ownership API.
func reviewClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := ownership.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &ownership.SchemeGroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// create creates a review and decodes the answer into it.
func (r *reviewer) create(ctx context.Context, resource string, review runtime.Object) error {
	err := r.client.Post().Resource(resource).Body(review).Do(ctx).Into(review)
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("the cluster at %s does not serve %s; the command needs a Kindred cluster", r.config.Host, ownership.GroupName)
	}
	return err
}

// objects parses arguments that name objects.
func (r *reviewer) objects(args []string) ([]ownership.ObjectReference, error) {
	named, err := splitObjects(args)
	if err != nil {
		return nil, err
	}
	var objects []ownership.ObjectReference
	for _, n := range named {
		object, err := r.kind(n[0])
		if err != nil {
			return nil, err
		}
		object.Name = n[1]
		objects = append(objects, object)
	}
	return objects, nil
}

// object parses arguments that name one object. otherwise is the error for more than one.
func (r *reviewer) object(args []string, otherwise string) (ownership.ObjectReference, error) {
	objects, err := r.objects(args)
	if err != nil {
		return ownership.ObjectReference{}, err
	}
	if len(objects) > 1 {
		return ownership.ObjectReference{}, usagef("%s", otherwise)
	}
	return objects[0], nil
}

// kind finds a type, and the namespace of its objects.
func (r *reviewer) kind(text string) (ownership.ObjectReference, error) {
	mapping, err := mappingOf(r.mapper, text)
	if err != nil {
		return ownership.ObjectReference{}, err
	}
	ref := ownership.ObjectReference{APIVersion: mapping.GroupVersionKind.GroupVersion().String(), Kind: mapping.GroupVersionKind.Kind}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		ref.Namespace = r.namespace
	}
	return ref, nil
}

// printYAML prints a value with the field names of the API.
func printYAML(cmd *cobra.Command, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	printf(cmd, "%s", text)
	return nil
}

// kindAndName names an object in a table with a column or heading for the namespace.
func kindAndName(ref ownership.ObjectReference) string { return ref.Kind + "/" + ref.Name }

// blockNote describes an obstacle to a deletion.
func blockNote(b ownership.DeletionBlock) string {
	switch {
	case b.Finalizer != "":
		return "waits for finalizer " + b.Finalizer
	case b.Dependent != nil:
		return "waits for its dependent " + kindAndName(*b.Dependent)
	case b.Owner != nil:
		return "waits for its owner " + kindAndName(*b.Owner)
	case b.Content != nil:
		return "waits for its content " + kindAndName(*b.Content)
	}
	return "waits for an object that you may not read"
}

// blockNotes describes the obstacles to a deletion, except for the owner that the object is shown
// below.
func blockNotes(blocks []ownership.DeletionBlock, above types.UID, all bool) []string {
	var finalizers, dependents, owners, contents []string
	hidden := 0
	for _, b := range blocks {
		switch {
		case b.Finalizer != "":
			finalizers = append(finalizers, b.Finalizer)
		case b.Dependent != nil:
			dependents = append(dependents, kindAndName(*b.Dependent))
		case b.Owner != nil:
			if b.Owner.UID != above {
				owners = append(owners, kindAndName(*b.Owner))
			}
		case b.Content != nil:
			contents = append(contents, kindAndName(*b.Content))
		default:
			hidden++
		}
	}
	unread := ""
	if hidden > 0 {
		unread = "waits for " + plural(hidden, "object") + " that you may not read"
	}
	return nonEmpty(
		notedAll("waits for finalizer %s", "waits for finalizers %s", finalizers, all),
		notedAll("waits for its dependent %s", "waits for its dependents %s", dependents, all),
		notedAll("waits for its owner %s", "waits for its owners %s", owners, all),
		notedAll("waits for its content %s", "waits for its contents %s", contents, all),
		unread)
}

// fewNames is how many names a note lists before it abbreviates.
const fewNames = 3

// notedAll formats one name, or several as "a, b, c and 17 more". With all it lists every name.
func notedAll(one, several string, names []string, all bool) string {
	more := len(names) - fewNames
	switch {
	case len(names) == 0:
		return ""
	case len(names) == 1:
		return fmt.Sprintf(one, names[0])
	case more > 1 && !all:
		return fmt.Sprintf(several, fmt.Sprintf("%s and %d more", strings.Join(names[:fewNames], ", "), more))
	}
	return fmt.Sprintf(several, strings.Join(names, ", "))
}

// parents returns the owners that a tree may show an object below, the controller first.
func parents(owners []ownership.OwnerReference) []types.UID {
	var first, rest []types.UID
	for _, o := range owners {
		if o.Controller != nil && *o.Controller {
			first = append(first, o.UID)
			continue
		}
		rest = append(rest, o.UID)
	}
	return append(first, rest...)
}

// ownerNotes name the owners that the object is not shown below, and the references to owners
// that do not exist or cannot be found.
func ownerNotes(owners []ownership.OwnerReference, at position, all bool) []string {
	var further, absent, unresolved []string
	for _, o := range owners {
		name := o.Kind + "/" + o.Name
		switch {
		case o.Standing == ownership.StandingDangling:
			absent = append(absent, name)
		case o.Standing == ownership.StandingUnresolved:
			unresolved = append(unresolved, name)
		case at.owns(o.UID):
			further = append(further, name+" (cycle)")
		case o.UID != at.above:
			further = append(further, name)
		}
	}
	by := "also owned by %s"
	if at.above == "" {
		by = "owned by %s"
	}
	return nonEmpty(
		notedAll(by, by, further, all),
		notedAll("owner %s does not exist", "owners %s do not exist", absent, all),
		notedAll("owner %s cannot be resolved", "owners %s cannot be resolved", unresolved, all))
}

// hiddenNote counts objects that the caller may not read.
func hiddenNote(hidden int32) string {
	switch hidden {
	case 0:
		return ""
	case 1:
		return "1 more object that you may not read"
	}
	return fmt.Sprintf("%d more objects that you may not read", hidden)
}

// plural counts things: "1 object", "2 objects".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// sentence joins the parts that are not empty.
func sentence(parts ...string) string { return strings.Join(nonEmpty(parts...), ", ") }

// nonEmpty returns the parts that are not empty.
func nonEmpty(parts ...string) []string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return kept
}
