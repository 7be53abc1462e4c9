// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// The Service of the DNS servers has upstream's name, which tools and other DNS servers' manifests know.
const (
	Namespace   = metav1.NamespaceSystem
	ServiceName = "kube-dns"
)

// manager is the value of the labels by which the objects of this package are recognized.
const manager = "dns.kindred.dev"

const managedByLabel = "app.kubernetes.io/managed-by"

// Publisher keeps the Service of the DNS servers, and the EndpointSlice of the server on one node. It leaves a
// Service alone that another client has created or given a selector: then other DNS servers are in use.
type Publisher struct {
	client    kubernetes.Interface
	clock     clock.WithTicker
	services  corelisters.ServiceNamespaceLister
	slices    discoverylisters.EndpointSliceNamespaceLister
	informers []cache.SharedIndexInformer
}

// NewPublisher returns a publisher that reads from informers, which the caller starts.
func NewPublisher(client kubernetes.Interface, shared informers.SharedInformerFactory, c clock.WithTicker) *Publisher {
	services, slices := shared.Core().V1().Services(), shared.Discovery().V1().EndpointSlices()
	return &Publisher{
		client: client, clock: c,
		services:  services.Lister().Services(Namespace),
		slices:    slices.Lister().EndpointSlices(Namespace),
		informers: []cache.SharedIndexInformer{services.Informer(), slices.Informer()},
	}
}

// Published has the objects that a Publisher keeps.
type Published struct {
	// ClusterIP is the address of the Service.
	ClusterIP netip.Addr
	// Node is the node that answers at Endpoint.
	Node     string
	Endpoint netip.AddrPort
	// NodeUID is set if the Node owns the EndpointSlice. Otherwise the Service does.
	NodeUID types.UID
}

// republish is the interval between two comparisons of the objects, in case that a write has failed.
const republish = 10 * time.Second

// Run keeps the objects as they should be until ctx is done. If the objects are changed, it reacts at once.
func (p *Publisher) Run(ctx context.Context, want Published) error {
	changed := make(chan struct{}, 1)
	for _, informer := range p.informers {
		registration, err := informer.AddEventHandler(cache.FilteringResourceEventHandler{
			FilterFunc: func(object any) bool { return want.concerns(object) },
			Handler:    onAny(func() { wake(changed) }),
		})
		if err != nil {
			return err
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	ticker := p.clock.NewTicker(republish)
	defer ticker.Stop()
	for last := ""; ; {
		err := p.Ensure(ctx, want)
		last = logChange(ctx, err, last, "Cannot publish the cluster's DNS server, will retry")
		select {
		case <-changed:
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// logChange logs an error that is not the last one, and returns it as text.
func logChange(ctx context.Context, err error, last, message string) string {
	if err == nil {
		return ""
	}
	if ctx.Err() == nil && err.Error() != last {
		klog.FromContext(ctx).Error(err, message)
	}
	return err.Error()
}

// concerns reports whether an object is one of those that are kept.
func (want Published) concerns(object any) bool {
	if deleted, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = deleted.Obj
	}
	switch o := object.(type) {
	case *corev1.Service:
		return o.Namespace == Namespace && o.Name == ServiceName
	case *discoveryv1.EndpointSlice:
		return o.Namespace == Namespace && o.Name == sliceName(want.Node)
	}
	return false
}

func onAny(call func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { call() }, UpdateFunc: func(any, any) { call() }, DeleteFunc: func(any) { call() },
	}
}

func wake(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// Ensure creates or corrects the objects once. If another client was faster, the informers bring what it
// wrote, and Run decides again.
func (p *Publisher) Ensure(ctx context.Context, want Published) error {
	service, err := p.ensureService(ctx, want)
	switch {
	case wasFaster(err):
		return nil
	case err != nil:
		return fmt.Errorf("publish the Service %s/%s: %w", Namespace, ServiceName, err)
	}
	if !isOurs(service) {
		return p.deleteSlice(ctx, sliceName(want.Node))
	}
	if err := p.ensureSlice(ctx, want.slice(service)); err != nil && !wasFaster(err) {
		return fmt.Errorf("publish the EndpointSlice %s/%s: %w", Namespace, sliceName(want.Node), err)
	}
	return nil
}

// wasFaster reports whether a write has failed because of another one.
func wasFaster(err error) bool { return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) }

func (p *Publisher) ensureService(ctx context.Context, want Published) (*corev1.Service, error) {
	found, err := p.services.Get(ServiceName)
	if apierrors.IsNotFound(err) {
		return p.client.CoreV1().Services(Namespace).Create(ctx, want.service(), metav1.CreateOptions{})
	}
	wanted := want.service()
	if err != nil || !isOurs(found) || samePorts(found.Spec.Ports, wanted.Spec.Ports) {
		return found, err
	}
	found = found.DeepCopy()
	found.Spec.Ports = wanted.Spec.Ports
	return p.client.CoreV1().Services(Namespace).Update(ctx, found, metav1.UpdateOptions{})
}

func samePorts(a, b []corev1.ServicePort) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Protocol != b[i].Protocol || a[i].Port != b[i].Port {
			return false
		}
	}
	return true
}

func (p *Publisher) ensureSlice(ctx context.Context, wanted *discoveryv1.EndpointSlice) error {
	slices := p.client.DiscoveryV1().EndpointSlices(Namespace)
	found, err := p.slices.Get(wanted.Name)
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil || sameSlice(found, wanted) {
		return err
	}
	found = found.DeepCopy()
	found.Labels, found.OwnerReferences = wanted.Labels, wanted.OwnerReferences
	found.Endpoints, found.Ports = wanted.Endpoints, wanted.Ports
	_, err = slices.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

func sameSlice(a, b *discoveryv1.EndpointSlice) bool {
	return maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints) && equality.Semantic.DeepEqual(a.Ports, b.Ports)
}

func (p *Publisher) deleteSlice(ctx context.Context, name string) error {
	found, err := p.slices.Get(name)
	if err == nil && found.Labels[discoveryv1.LabelManagedBy] == manager {
		err = p.client.DiscoveryV1().EndpointSlices(Namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	}
	return ignoreNotFound(err)
}

// Withdraw deletes the objects that publishers have created, and no others.
func (p *Publisher) Withdraw(ctx context.Context, node string) error {
	if err := p.deleteSlice(ctx, sliceName(node)); err != nil {
		return err
	}
	found, err := p.services.Get(ServiceName)
	if err == nil && isOurs(found) {
		err = p.client.CoreV1().Services(Namespace).Delete(ctx, ServiceName, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	}
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ClusterIP returns the address of the Service kube-dns, which a user may have created. If the Service does not
// exist yet, it returns the given address.
func (p *Publisher) ClusterIP(otherwise netip.Addr) netip.Addr {
	service, err := p.services.Get(ServiceName)
	if err != nil {
		return otherwise
	}
	address, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil {
		return otherwise
	}
	return address
}

// isOurs reports whether a Service is one that publishers keep. A selector means that other
// DNS servers are installed.
func isOurs(service *corev1.Service) bool {
	return service.Labels[managedByLabel] == manager && len(service.Spec.Selector) == 0
}

// sliceName returns the name of a node's EndpointSlice.
func sliceName(node string) string { return ServiceName + "-" + node }

func (want Published) service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: ServiceName, Labels: map[string]string{
			"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS", managedByLabel: manager,
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: want.ClusterIP.String(),
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: Port, TargetPort: intstr.FromInt32(Port)},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: Port, TargetPort: intstr.FromInt32(Port)},
			},
		},
	}
}

func (want Published) owner(service *corev1.Service) metav1.OwnerReference {
	if want.NodeUID != "" {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: want.Node, UID: want.NodeUID}
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}
}

// slice returns the EndpointSlice of a node. The hint makes each node ask its own server.
func (want Published) slice(service *corev1.Service) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if want.Endpoint.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	port := func(name string, protocol corev1.Protocol) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: ptr.To(name), Protocol: ptr.To(protocol), Port: ptr.To(int32(want.Endpoint.Port()))}
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: sliceName(want.Node),
			Labels:          map[string]string{discoveryv1.LabelServiceName: ServiceName, discoveryv1.LabelManagedBy: manager, "k8s-app": "kube-dns"},
			OwnerReferences: []metav1.OwnerReference{want.owner(service)},
		},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{want.Endpoint.Addr().String()},
			NodeName:   ptr.To(want.Node),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			Hints:      &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: want.Node}}},
		}},
		Ports: []discoveryv1.EndpointPort{port("dns", corev1.ProtocolUDP), port("dns-tcp", corev1.ProtocolTCP)},
	}
}
