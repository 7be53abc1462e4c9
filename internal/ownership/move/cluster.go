// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// Cluster is one end of a move.
type Cluster struct {
	// Name is the cluster's name in plans and errors.
	Name string

	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.ServerResourcesInterfaceWithContext
	access    authorization.SelfSubjectAccessReviewInterface

	kinds *kinds
}

// NewCluster returns the cluster of a client configuration.
func NewCluster(name string, config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	// The server protects itself by priority and fairness.
	config.QPS = -1
	config.UserAgent = manager
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	access, err := authorization.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Name: name, dynamic: dynamicClient, metadata: metadataClient,
		discovery: discovery.ToServerResourcesInterfaceWithContext(discoveryClient),
		access:    access.SelfSubjectAccessReviews(),
	}, nil
}

// kind is a kind that a cluster serves, in one version.
type kind struct {
	schema.GroupVersionResource
	schema.GroupVersionKind
	namespaced, status bool
	verbs              []string
}

func (k kind) can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(k.verbs, verb) })
}

type kinds struct {
	served map[schema.GroupVersionKind]kind
	// preferred has each resource once, in the preferred version of its group.
	preferred []kind
}

// skipped are resources whose objects are never moved: they describe events or components of their
// own cluster.
var skipped = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
	{Group: "coordination.k8s.io", Resource: "leases"}: true,
	{Resource: "nodes"}: true, {Resource: "componentstatuses"}: true,
	{Group: "metrics.k8s.io", Resource: "pods"}: true, {Group: "metrics.k8s.io", Resource: "nodes"}: true,
}

func (c *Cluster) knownKinds(ctx context.Context) (*kinds, error) {
	if c.kinds != nil {
		return c.kinds, nil
	}
	groups, lists, err := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err); partial {
		var names []string
		for gv := range failed {
			names = append(names, gv.String())
		}
		slices.Sort(names)
		return nil, fmt.Errorf("%s: the API servers of %s do not respond, so their objects of the graph are not known; repair or remove their APIServices", c.Name, strings.Join(names, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot discover the served resources: %w", c.Name, err)
	}
	c.kinds = kindsOf(groups, lists)
	return c.kinds, nil
}

func kindsOf(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) *kinds {
	preferred := map[string]bool{}
	for _, group := range groups {
		preferred[group.PreferredVersion.GroupVersion] = true
	}
	all := &kinds{served: map[schema.GroupVersionKind]kind{}}
	index := map[schema.GroupResource]int{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		withStatus := map[string]bool{}
		for _, r := range list.APIResources {
			if resource, sub, _ := strings.Cut(r.Name, "/"); sub == "status" && slices.Contains(r.Verbs, "update") {
				withStatus[resource] = true
			}
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			k := kind{gv.WithResource(r.Name), gv.WithKind(r.Kind), r.Namespaced, withStatus[r.Name], r.Verbs}
			all.served[k.GroupVersionKind] = k
			if gk := k.GroupVersionKind.GroupKind(); graph.Current(gk) != gk {
				continue // the objects of another resource
			}
			at, found := index[k.GroupResource()]
			if !found {
				index[k.GroupResource()] = len(all.preferred)
				all.preferred = append(all.preferred, k)
			} else if preferred[list.GroupVersion] {
				all.preferred[at] = k
			}
		}
	}
	return all
}

// objects returns the client of a kind in a namespace, which is ignored for cluster-scoped kinds.
func (c *Cluster) objects(k kind, namespace string) dynamic.ResourceInterface {
	if !k.namespaced {
		return c.dynamic.Resource(k.GroupVersionResource)
	}
	return c.dynamic.Resource(k.GroupVersionResource).Namespace(namespace)
}

// served returns the served kind of an object.
func (c *Cluster) served(ctx context.Context, object *unstructured.Unstructured) (kind, error) {
	kinds, err := c.knownKinds(ctx)
	if err != nil {
		return kind{}, err
	}
	k, found := kinds.served[object.GroupVersionKind()]
	if !found {
		return kind{}, fmt.Errorf("%s does not serve %s", c.Name, object.GroupVersionKind())
	}
	return k, nil
}

// get reads the object of the same kind and name as like. It returns nil if there is none.
func (c *Cluster) get(ctx context.Context, like *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k, err := c.served(ctx, like)
	if err != nil {
		return nil, err
	}
	object, err := c.objects(k, like.GetNamespace()).Get(ctx, like.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, c.wrapError(err)
}

// named reads the object of a kind and name in the preferred version. It returns nil if there is none, or the kind is not served.
func (c *Cluster) named(ctx context.Context, gk schema.GroupKind, namespace, name string) (*unstructured.Unstructured, error) {
	k, err := c.preferred(ctx, gk)
	if err != nil || k.Resource == "" {
		return nil, err
	}
	return c.get(ctx, Ref{k.GroupVersionKind, namespace, name}.object())
}

// all returns all objects of a kind in a namespace, or none if the kind is not served.
func (c *Cluster) all(ctx context.Context, gk schema.GroupKind, namespace string) ([]unstructured.Unstructured, error) {
	k, err := c.preferred(ctx, gk)
	if err != nil || k.Resource == "" {
		return nil, err
	}
	list, err := c.objects(k, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.wrapError(err)
	}
	return list.Items, nil
}

// preferred returns the preferred version of a kind; zero if it is not served.
func (c *Cluster) preferred(ctx context.Context, gk schema.GroupKind) (kind, error) {
	kinds, err := c.knownKinds(ctx)
	if err != nil {
		return kind{}, err
	}
	for _, k := range kinds.preferred {
		if k.GroupVersionKind.GroupKind() == gk {
			return k, nil
		}
	}
	return kind{}, nil
}

// wrapError adds the cluster's name to an error.
func (c *Cluster) wrapError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

const page = 500

// anyGroup selects the kinds of all groups.
func anyGroup(string) bool { return true }

// list lists the metadata of all objects of some groups in some namespaces, or of all in the cluster if
// no namespace is given. It fails if any kind cannot be listed, and names all of those kinds: a dependent
// that is not listed would be left behind and garbage collected.
func (c *Cluster) list(ctx context.Context, namespaces []string, has func(group string) bool) ([]*metav1.PartialObjectMetadata, error) {
	kinds, err := c.knownKinds(ctx)
	if err != nil {
		return nil, err
	}
	var found []*metav1.PartialObjectMetadata
	var failed []error
	var forbidden []string
	for _, k := range kinds.preferred {
		if !has(k.GroupVersionKind.Group) || skipped[k.GroupResource()] || !k.can("list", "get", "delete") || !k.namespaced && len(namespaces) > 0 {
			continue
		}
		in := namespaces
		if len(in) == 0 {
			in = []string{metav1.NamespaceAll}
		}
		for _, namespace := range in {
			objects, err := c.listKind(ctx, k, namespace)
			found = append(found, objects...)
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
				// The kind is no longer served, or cannot be listed.
			case apierrors.IsForbidden(err):
				forbidden = append(forbidden, strings.TrimSuffix(k.GroupResource().String()+" in "+namespace, " in "))
			case err != nil:
				failed = append(failed, c.wrapError(err))
			}
		}
	}
	if len(forbidden) > 0 {
		failed = append(failed, fmt.Errorf("%s does not allow you to list %s: dependents among them would be left behind; grant get, list and delete there", c.Name, abbreviate(forbidden)))
	}
	return found, errors.Join(failed...)
}

// abbreviate joins names, at most the first five.
func abbreviate(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func (c *Cluster) listKind(ctx context.Context, k kind, namespace string) ([]*metav1.PartialObjectMetadata, error) {
	var found []*metav1.PartialObjectMetadata
	getter := c.metadata.Resource(k.GroupVersionResource)
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := getter.Namespace(namespace).List(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			// The continue token has expired: start again, without pages.
			found, options = nil, metav1.ListOptions{}
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			object := &list.Items[i]
			// API servers do not always set the kind of list items.
			object.SetGroupVersionKind(k.GroupVersionKind)
			found = append(found, object)
		}
		if list.Continue == "" {
			return found, nil
		}
		options.Continue = list.Continue
	}
}

// allows reports whether the caller may use a verb. It returns true if the access review fails: the
// request itself will show.
func (c *Cluster) allows(ctx context.Context, verb string, k kind, subresource, namespace string) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: k.GroupVersionResource.Group, Version: k.GroupVersionResource.Version,
			Resource: k.Resource, Subresource: subresource, Namespace: namespace,
		},
	}}
	answer, err := c.access.Create(ctx, review, metav1.CreateOptions{})
	return err != nil || answer.Status.Allowed
}
