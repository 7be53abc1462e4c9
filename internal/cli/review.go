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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// reviewer asks a cluster about ownership.
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

// reviewClient is a client of the reviews of ownership.
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

// ask has a review answered, in place.
func (r *reviewer) ask(ctx context.Context, resource string, review runtime.Object) error {
	err := r.client.Post().Resource(resource).Body(review).Do(ctx).Into(review)
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("the cluster at %s does not serve %s; is it Kindred?", r.config.Host, ownership.GroupName)
	}
	return err
}

// objects reads arguments that name objects.
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

// object reads arguments that name one object; otherwise is what is said to those who name more.
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

// kind finds a type, and the namespace that its objects are looked for in.
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

// printYAML prints a value as the API spells it.
func printYAML(cmd *cobra.Command, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	printf(cmd, "%s", text)
	return nil
}

// called names an object in a table, where the namespace stands elsewhere.
func called(ref ownership.ObjectReference) string { return ref.Kind + "/" + ref.Name }

// blockNote says what a deletion waits for.
func blockNote(b ownership.DeletionBlock) string {
	switch {
	case b.Finalizer != "":
		return "waits for finalizer " + b.Finalizer
	case b.Dependent != nil:
		return "waits for its dependent " + called(*b.Dependent)
	case b.Owner != nil:
		return "goes after its owner " + called(*b.Owner)
	case b.Content != nil:
		return "waits for its content " + called(*b.Content)
	}
	return "waits for something that you may not read"
}

// parents are the owners of an object that a tree may show it below: the controller first.
func parents(owners []ownership.OwnerReference) []ownership.OwnerReference {
	var first, rest []ownership.OwnerReference
	for _, o := range owners {
		if o.Controller != nil && *o.Controller {
			first = append(first, o)
			continue
		}
		rest = append(rest, o)
	}
	return append(first, rest...)
}

// ownerNotes tell of owner references that the place in the tree does not: further owners,
// and those that do not stand as they should.
func ownerNotes(owners []ownership.OwnerReference, above string) []string {
	var notes []string
	for _, o := range owners {
		name := o.Kind + "/" + o.Name
		switch {
		case o.Standing == ownership.StandingDangling:
			notes = append(notes, "owner "+name+" does not exist")
		case o.Standing == ownership.StandingUnresolved:
			notes = append(notes, "owner "+name+" cannot be resolved")
		case string(o.UID) != above:
			notes = append(notes, "also owned by "+name)
		}
	}
	return notes
}

// hiddenNote says how much the caller may not see.
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

// sentence joins what there is to say.
func sentence(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, ", ")
}
