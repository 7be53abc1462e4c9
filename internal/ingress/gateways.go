// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kindred-project/kindred/internal/ingress/compile"
)

// gateways watches the objects of the Gateway API, and writes their statuses.
type gateways struct {
	*Ingress
	dynamic    dynamic.Interface
	crds       cache.SharedIndexInformer
	kinds      map[string]*kind
	namespaces corelisters.NamespaceLister
	installed  bool
	// broken has the reasons why Gateways have no Service, by their UIDs.
	broken map[types.UID]string
}

// newGateways returns nil without a client: then the Gateway API is not served.
func newGateways(i *Ingress) (*gateways, error) {
	if i.options.Dynamic == nil {
		return nil, nil
	}
	namespaces := i.options.Informers.Core().V1().Namespaces()
	g := &gateways{Ingress: i, dynamic: i.options.Dynamic, kinds: newKinds(), namespaces: namespaces.Lister(), broken: map[types.UID]string{}}
	g.crds = g.watchCRDs()
	return g, errors.Join(
		i.watch(namespaces.Informer(), sameLabels, func(any) { i.changed() }),
		g.wakeOnCRDs(),
	)
}

func sameLabels(old, now any) bool {
	a, errA := meta.Accessor(old)
	b, errB := meta.Accessor(now)
	return errA == nil && errB == nil && equality.Semantic.DeepEqual(a.GetLabels(), b.GetLabels())
}

// wakeOnCRDs does not delay the start: Ingresses are served also without CRDs.
func (g *gateways) wakeOnCRDs() error {
	_, err := g.crds.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.changed() }, UpdateFunc: func(any, any) { g.changed() }, DeleteFunc: func(any) { g.changed() },
	})
	return err
}

// compile compiles the objects of the Gateway API; the result is empty as long as they have not been read.
func (g *gateways) compile(ctx context.Context, failed map[uint16]string) (compile.Gateways, error) {
	if !g.installed {
		if err := g.installCRDs(ctx); err != nil {
			return compile.Gateways{}, err
		}
		g.installed = true
	}
	g.followCRDs(ctx)
	if !g.complete() {
		return compile.Gateways{}, nil
	}
	classes := listOf[*gatewayv1.GatewayClass](g, "gatewayclasses")
	all := listOf[*gatewayv1.Gateway](g, "gateways")
	err := errors.Join(g.ensureGatewayClass(ctx, classes), g.ensureServices(ctx, compile.OwnGateways(all, classes)))
	return compile.CompileGateways(compile.GatewayObjects{
		Objects: g.objects(), Classes: classes, Gateways: all,
		HTTPRoutes: listOf[*gatewayv1.HTTPRoute](g, "httproutes"),
		GRPCRoutes: listOf[*gatewayv1.GRPCRoute](g, "grpcroutes"),
		TLSRoutes:  listOf[*gatewayv1.TLSRoute](g, "tlsroutes"),
		Grants:     listOf[*gatewayv1.ReferenceGrant](g, "referencegrants"),
		NamespaceLabels: func(name string) map[string]string {
			namespace, err := g.namespaces.Get(name)
			if err != nil {
				return nil
			}
			return namespace.Labels
		},
		Place: g.place, Failed: failed, Ingress: g.options.Ports, Now: metav1.NewTime(g.options.Clock.Now()),
	}), err
}

// ensureGatewayClass creates the GatewayClass. One that exists is left as it is, so that a user can change it.
func (g *gateways) ensureGatewayClass(ctx context.Context, classes []*gatewayv1.GatewayClass) error {
	if g.kinds["gatewayclasses"].informer == nil {
		return nil
	}
	for _, c := range classes {
		if c.Name == ClassName {
			return nil
		}
	}
	class := &gatewayv1.GatewayClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "GatewayClass"},
		ObjectMeta: metav1.ObjectMeta{Name: ClassName, Labels: managed},
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: compile.GatewayController},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(class)
	if err != nil {
		return err
	}
	delete(content, "status")
	_, err = g.dynamic.Resource(resourceOf("gatewayclasses")).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create the GatewayClass %s: %w", ClassName, err)
}

// writeGatewayStatuses writes the statuses that have changed.
func (g *gateways) writeGatewayStatuses(ctx context.Context, compiled compile.Gateways) error {
	var failed []error
	for _, c := range listOf[*gatewayv1.GatewayClass](g, "gatewayclasses") {
		if want, ok := compiled.Classes[c.Name]; ok {
			failed = append(failed, writeStatus(ctx, g, "gatewayclasses", c, &c.Status, want))
		}
	}
	for _, o := range listOf[*gatewayv1.Gateway](g, "gateways") {
		if want, ok := compiled.Statuses[keyOf(o)]; ok {
			failed = append(failed, writeStatus(ctx, g, "gateways", o, &o.Status, want))
		}
	}
	for _, r := range listOf[*gatewayv1.HTTPRoute](g, "httproutes") {
		if want, ok := compiled.Routes[compile.RouteKey{Kind: "HTTPRoute", NamespacedName: keyOf(r)}]; ok {
			failed = append(failed, writeStatus(ctx, g, "httproutes", r, &r.Status.RouteStatus, want))
		}
	}
	for _, r := range listOf[*gatewayv1.GRPCRoute](g, "grpcroutes") {
		if want, ok := compiled.Routes[compile.RouteKey{Kind: "GRPCRoute", NamespacedName: keyOf(r)}]; ok {
			failed = append(failed, writeStatus(ctx, g, "grpcroutes", r, &r.Status.RouteStatus, want))
		}
	}
	for _, r := range listOf[*gatewayv1.TLSRoute](g, "tlsroutes") {
		if want, ok := compiled.Routes[compile.RouteKey{Kind: "TLSRoute", NamespacedName: keyOf(r)}]; ok {
			failed = append(failed, writeStatus(ctx, g, "tlsroutes", r, &r.Status.RouteStatus, want))
		}
	}
	return errors.Join(failed...)
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// writeStatus writes the status of an object if it is not the wanted one. Other parts of the object stay as they are.
func writeStatus[T any](ctx context.Context, g *gateways, plural string, o metav1.Object, has *T, want T) error {
	if equality.Semantic.DeepEqual(*has, want) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return err
	}
	whole, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	changed := &unstructured.Unstructured{Object: whole}
	changed.Object["status"] = content
	gvr := resourceOf(plural)
	changed.SetAPIVersion(gvr.GroupVersion().String())
	changed.SetKind(kindNames[plural])
	_, err = g.dynamic.Resource(gvr).Namespace(o.GetNamespace()).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // the informer brings what has changed
		return nil
	}
	return fmt.Errorf("write the status of %s %s/%s: %w", kindNames[plural], o.GetNamespace(), o.GetName(), err)
}

var kindNames = map[string]string{
	"gatewayclasses": "GatewayClass", "gateways": "Gateway", "httproutes": "HTTPRoute", "grpcroutes": "GRPCRoute", "tlsroutes": "TLSRoute",
}
