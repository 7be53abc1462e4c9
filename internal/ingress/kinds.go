// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// kind is a kind of the Gateway API, which is watched while its CRD serves it.
type kind struct {
	// empty returns a new object of the type.
	empty    func() runtime.Object
	informer cache.SharedIndexInformer
	synced   cache.InformerSynced
	stop     context.CancelFunc
}

func newKinds() map[string]*kind {
	return map[string]*kind{
		"gatewayclasses":  {empty: func() runtime.Object { return &gatewayv1.GatewayClass{} }},
		"gateways":        {empty: func() runtime.Object { return &gatewayv1.Gateway{} }},
		"httproutes":      {empty: func() runtime.Object { return &gatewayv1.HTTPRoute{} }},
		"grpcroutes":      {empty: func() runtime.Object { return &gatewayv1.GRPCRoute{} }},
		"tlsroutes":       {empty: func() runtime.Object { return &gatewayv1.TLSRoute{} }},
		"referencegrants": {empty: func() runtime.Object { return &gatewayv1.ReferenceGrant{} }},
	}
}

func resourceOf(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Resource: plural}
}

// watchCRDs returns an informer of what matters of the CRDs.
func (g *gateways) watchCRDs() cache.SharedIndexInformer {
	informer := dynamicinformer.NewFilteredDynamicInformer(g.dynamic, crdResource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	_ = informer.SetTransform(func(o any) (any, error) { return slimCRD(o), nil }) // fails only after the start
	return informer
}

// slimCRD returns what matters of a CRD. Informers transform some objects twice.
func slimCRD(o any) any {
	crd, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o
	}
	if _, done := crd.Object["serves"]; done {
		return o
	}
	slim := &unstructured.Unstructured{Object: map[string]any{"apiVersion": crd.GetAPIVersion(), "kind": crd.GetKind(), "serves": serves(crd)}}
	slim.SetName(crd.GetName())
	slim.SetUID(crd.GetUID())
	slim.SetResourceVersion(crd.GetResourceVersion())
	return slim
}

// serves reports whether a CRD serves the version of the Gateway API that this package reads.
func serves(crd *unstructured.Unstructured) bool {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	has := func(list []any, key, value, flag string, want any) bool {
		return slices.ContainsFunc(list, func(o any) bool {
			m, _ := o.(map[string]any)
			return m[key] == value && m[flag] == want
		})
	}
	return has(versions, "name", gatewayv1.GroupVersion.Version, "served", true) && has(conditions, "type", "Established", "status", "True")
}

// followCRDs starts to watch the kinds that are served now, and forgets those that are no longer.
func (g *gateways) followCRDs(ctx context.Context) {
	for plural, k := range g.kinds {
		served := false
		if o, ok, _ := g.crds.GetIndexer().GetByKey(plural + "." + gatewayv1.GroupName); ok {
			served, _ = o.(*unstructured.Unstructured).Object["serves"].(bool)
		}
		switch {
		case served && k.stop == nil:
			g.start(ctx, plural, k)
		case !served && k.stop != nil:
			k.stop()
			k.informer, k.synced, k.stop = nil, nil, nil
		}
	}
}

func (g *gateways) start(ctx context.Context, plural string, k *kind) {
	informer := dynamicinformer.NewFilteredDynamicInformer(g.dynamic, resourceOf(plural), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	_ = informer.SetTransform(func(o any) (any, error) { return k.typed(o), nil }) // fails only after the start
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.changed() }, UpdateFunc: func(any, any) { g.changed() }, DeleteFunc: func(any) { g.changed() },
	})
	if err != nil {
		return // only of a stopped informer
	}
	ctx, stop := context.WithCancel(ctx)
	k.informer, k.synced, k.stop = informer, registration.HasSynced, stop
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			g.changed() // without objects there was no event
		}
	}()
}

// typed returns an object in its type. One that does not have its form, because its CRD is another one, stays as it is
// and is ignored.
func (k *kind) typed(o any) any {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o
	}
	u.SetManagedFields(nil)
	to := k.empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to); err != nil {
		return o
	}
	return to
}

// complete reports whether all kinds that are served have been read.
func (g *gateways) complete() bool {
	for _, k := range g.kinds {
		if k.synced != nil && !k.synced() {
			return false
		}
	}
	return g.crds.HasSynced()
}

// listOf returns the objects of a kind; none if it is not served.
func listOf[T any](g *gateways, plural string) []T {
	k := g.kinds[plural]
	if k.informer == nil {
		return nil
	}
	var all []T
	for _, o := range k.informer.GetStore().List() {
		if typed, ok := o.(T); ok {
			all = append(all, typed)
		}
	}
	return all
}
