// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kindred-project/kindred/internal/ingress/compile"
)

const (
	// gatewayClass is the class of Services that hold the address of a Gateway. The controller of load balancers gives
	// them an address of its pools; internal/network announces it, and leaves its packets to this process.
	gatewayClass = "kindred.dev/gateway"
	// announcer is the annotation of such a Service with the node that announces its address: that of this process.
	announcer = "kindred.dev/announced-by"
)

// pooled reports whether Gateways get addresses of pools.
func (g *gateways) pooled() bool { return len(g.options.Pools) > 0 && !g.options.Address.IsValid() }

// place returns where a Gateway is served: at the address of its Service if there are pools, or else at those of the
// machine. Requested addresses that are the machine's are shared, too.
func (g *gateways) place(o *gatewayv1.Gateway) compile.Place {
	requested, place := g.requested(o)
	if place.Reason != "" {
		return place
	}
	machine := g.machineAddresses()
	if !g.pooled() || len(requested) > 0 && slices.Contains(machine, requested[0]) {
		for _, a := range requested {
			if !slices.Contains(machine, a) {
				return unusable("the address %s is not one of this machine, where Gateways are served", a)
			}
		}
		if len(requested) > 0 {
			machine = requested
		}
		if len(machine) == 0 {
			return compile.Place{Reason: string(gatewayv1.GatewayReasonAddressNotAssigned), Message: "this machine has no address"}
		}
		return compile.Place{Addresses: machine}
	}
	return g.placeFromPool(o, requested)
}

func unusable(format string, args ...any) compile.Place {
	return compile.Place{Reason: string(gatewayv1.GatewayReasonAddressNotUsable), Message: fmt.Sprintf(format, args...)}
}

// requested returns the addresses that a Gateway asks for. Those without a value leave the choice to the controller.
func (g *gateways) requested(o *gatewayv1.Gateway) ([]netip.Addr, compile.Place) {
	var all []netip.Addr
	for _, a := range o.Spec.Addresses {
		if kind := ptr.Deref(a.Type, gatewayv1.IPAddressType); kind != gatewayv1.IPAddressType {
			return nil, compile.Place{
				Unsupported: true, Reason: string(gatewayv1.GatewayReasonUnsupportedAddress),
				Message: fmt.Sprintf("addresses of the type %s are not supported", kind),
			}
		}
		if a.Value == "" {
			continue
		}
		parsed, err := netip.ParseAddr(a.Value)
		if err != nil {
			return nil, unusable("%q is not an IP address", a.Value)
		}
		all = append(all, parsed.Unmap())
	}
	return all, compile.Place{}
}

func (g *gateways) machineAddresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range g.addresses() {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// placeFromPool returns the addresses of a Gateway's Service.
func (g *gateways) placeFromPool(o *gatewayv1.Gateway, requested []netip.Addr) compile.Place {
	for i, a := range requested {
		if i > 0 || !slices.ContainsFunc(g.options.Pools, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return unusable("the address %s cannot be used: give one address of this machine, or one of a pool of load balancers", a)
		}
	}
	if reason := g.broken[o.UID]; reason != "" {
		return compile.Place{Reason: string(gatewayv1.GatewayReasonAddressNotAssigned), Message: reason}
	}
	name := serviceName(o.Name)
	waiting := compile.Place{
		Reason: string(gatewayv1.GatewayReasonAddressNotAssigned), Message: fmt.Sprintf("the Service %s, which holds the address, has none yet; its events have the reason", name),
	}
	svc, err := g.options.Informers.Core().V1().Services().Lister().Services(o.Namespace).Get(name)
	if err != nil || !metav1.IsControlledBy(svc, o) {
		return waiting
	}
	place := compile.Place{Own: true}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			place.Addresses = append(place.Addresses, a.Unmap())
		}
	}
	if len(place.Addresses) == 0 || len(requested) > 0 && !slices.Contains(place.Addresses, requested[0]) {
		return waiting
	}
	return place
}

// serviceName returns the name of a Gateway's Service: a DNS label, which the name of a Gateway may not be.
func serviceName(gateway string) string {
	name := "gateway-" + gateway
	if len(name) <= 63 && !strings.Contains(name, ".") {
		return name
	}
	sum := sha256.Sum256([]byte(gateway))
	return fmt.Sprintf("%s-%x", strings.TrimRight(strings.ReplaceAll(name[:min(len(name), 50)], ".", "-"), "-"), sum[:5])
}

// ensureServices creates and updates the Services that hold the addresses of Gateways. They are removed with their
// Gateway by the garbage collector, and here if it needs none any more.
func (g *gateways) ensureServices(ctx context.Context, all []*gatewayv1.Gateway) error {
	g.broken = map[types.UID]string{}
	if !g.pooled() {
		return nil
	}
	var failed []error
	for _, o := range all {
		if err := g.ensureService(ctx, o); err != nil {
			g.broken[o.UID] = err.Error()
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (g *gateways) ensureService(ctx context.Context, o *gatewayv1.Gateway) error {
	want := g.serviceFor(o)
	client := g.options.Client.CoreV1().Services(o.Namespace)
	has, err := g.options.Informers.Core().V1().Services().Lister().Services(o.Namespace).Get(want.Name)
	switch {
	case err != nil && !g.needsService(o):
		return nil
	case err != nil:
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the informer brings it
		}
		return wrap(err, "create", want)
	case !metav1.IsControlledBy(has, o):
		return fmt.Errorf("the Service %s/%s exists and is not the Gateway's, so that it has no address; delete it, or rename the Gateway", has.Namespace, has.Name)
	case !g.needsService(o):
		err = client.Delete(ctx, has.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(has.UID))})
		return wrap(err, "delete", want)
	}
	updated := has.DeepCopy()
	updated.Labels, updated.Annotations = merged(has.Labels, want.Labels), merged(has.Annotations, want.Annotations)
	updated.Spec.LoadBalancerIP = want.Spec.LoadBalancerIP
	if !slices.EqualFunc(has.Spec.Ports, want.Spec.Ports, func(a, b v1.ServicePort) bool { return a.Port == b.Port && a.Name == b.Name }) {
		updated.Spec.Ports = want.Spec.Ports
	}
	if equality.Semantic.DeepEqual(has, updated) {
		return nil
	}
	_, err = client.Update(ctx, updated, metav1.UpdateOptions{})
	return wrap(err, "update", want)
}

func wrap(err error, verb string, svc *v1.Service) error {
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s the Service %s/%s, which holds the address: %w", verb, svc.Namespace, svc.Name, err)
}

func merged(has, want map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range []map[string]string{has, want} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// needsService reports whether a Gateway is served at an address of a pool.
func (g *gateways) needsService(o *gatewayv1.Gateway) bool {
	requested, place := g.requested(o)
	return place.Reason == "" && (len(requested) == 0 || !slices.Contains(g.machineAddresses(), requested[0]))
}

// serviceFor returns the Service that holds the address of a Gateway. It has no endpoints.
func (g *gateways) serviceFor(o *gatewayv1.Gateway) *v1.Service {
	svc := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: serviceName(o.Name),
			Labels:          merged(managed, map[string]string{gatewayv1.GatewayNameLabelKey: labelValue(o.Name), gatewayv1.GatewayClassNameLabelKey: labelValue(string(o.Spec.GatewayClassName))}),
			Annotations:     map[string]string{announcer: g.options.Node},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Kind: "Gateway"})},
		},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To(gatewayClass),
			AllocateLoadBalancerNodePorts: ptr.To(false), IPFamilyPolicy: ptr.To(v1.IPFamilyPolicyPreferDualStack),
		},
	}
	if i := o.Spec.Infrastructure; i != nil {
		for k, v := range i.Labels {
			svc.Labels[string(k)] = string(v)
		}
		for k, v := range i.Annotations {
			svc.Annotations[string(k)] = string(v)
		}
	}
	if requested, _ := g.requested(o); len(requested) > 0 {
		svc.Spec.LoadBalancerIP = requested[0].String()
	}
	seen := map[int32]bool{}
	for _, l := range o.Spec.Listeners {
		if !seen[l.Port] {
			svc.Spec.Ports = append(svc.Spec.Ports, v1.ServicePort{Name: fmt.Sprintf("port-%d", l.Port), Port: l.Port, Protocol: v1.ProtocolTCP})
		}
		seen[l.Port] = true
	}
	return svc
}

// labelValue returns a name as the value of a label, which is shorter.
func labelValue(name string) string {
	if len(name) <= 63 {
		return name
	}
	return serviceName(name)
}
