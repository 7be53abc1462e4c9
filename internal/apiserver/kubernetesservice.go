// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but still served.

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/serviceip"
	"github.com/kindred-project/kindred/internal/storage"
)

const (
	kubernetesName = "kubernetes"
	httpsPort      = 443
	// refreshInterval is the interval at which the endpoints are reconciled, as upstream.
	refreshInterval = 10 * time.Second
	// sharedRefreshInterval is the same of servers that share a store. A server that is lost is removed within
	// this and peerTTL.
	sharedRefreshInterval = 2 * time.Second
)

// kubernetesService maintains the Service default/kubernetes, the API for pods: the first address
// of the first range, with the API servers as endpoints. It has no selector: each server adds its own
// endpoint.
//
// A server with an embedded store is the only one. Servers that share a store find each other by
// keys that expire: see peers.
type kubernetesService struct {
	client kubernetes.Interface
	ranges []netip.Prefix
	// address is that of this server; nil if pods cannot reach it (on loopback).
	address net.IP
	port    int32
	// peers is nil if the store is not shared.
	peers *peers
}

func newKubernetesService(c Config, client kubernetes.Interface, resources storage.Resources) (*kubernetesService, error) {
	k := &kubernetesService{client: client, ranges: c.ServiceCIDRs, port: int32(c.AdvertisePort)}
	unreachable := check.Run(func(to *check.Checker) { core.ValidateEndpointIP(to, c.AdvertiseAddress.String(), nil) })
	if len(unreachable) == 0 {
		k.address = c.AdvertiseAddress
	}
	if !c.Backend.Shared() {
		return k, nil
	}
	var err error
	k.peers, err = openPeers(resources)
	return k, err
}

// run reconciles the Service until ctx is done, and calls ensured after each success.
func (k *kubernetesService) run(ctx context.Context, c clock.WithTicker, ensured func()) {
	ticker := c.NewTicker(k.interval())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		switch err := k.ensure(ctx); {
		case err == nil:
			ensured()
		case ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Cannot update the Service default/kubernetes, will retry")
		}
	}
}

func (k *kubernetesService) interval() time.Duration {
	if k.peers == nil {
		return refreshInterval
	}
	return sharedRefreshInterval
}

// ensureRange creates the ServiceCIDR that the server was started with. It does not change a range that exists,
// because addresses may be allocated from it, but adds one of the other family.
func (k *kubernetesService) ensureRange(ctx context.Context) error {
	ranges, cidrs := k.client.NetworkingV1().ServiceCIDRs(), k.cidrs()
	found, err := ranges.Get(ctx, kubernetesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		wanted := &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: kubernetesName},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
		}
		found, err = ranges.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return k.ensureRange(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("ServiceCIDR %s: %w", kubernetesName, err)
	}
	if len(cidrs) == 2 && slices.Equal(found.Spec.CIDRs, cidrs[:1]) {
		found.Spec.CIDRs = cidrs
		if found, err = ranges.Update(ctx, found, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("adding %s to ServiceCIDR %s: %w", cidrs[1], kubernetesName, err)
		}
	}
	if !slices.Equal(found.Spec.CIDRs, cidrs) {
		klog.FromContext(ctx).Info("The default ServiceCIDR does not match the service CIDR that the server was started with; it stays as it is",
			"serviceCIDR", found.Spec.CIDRs, "startedWith", cidrs)
		return nil
	}
	if !found.DeletionTimestamp.IsZero() || meta.FindStatusCondition(found.Status.Conditions, networkingv1.ServiceCIDRConditionReady) != nil {
		return nil
	}
	meta.SetStatusCondition(&found.Status.Conditions, metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes default Service CIDR is ready",
	})
	_, err = ranges.UpdateStatus(ctx, found, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil // another server has set the condition
	}
	return err
}

// cidrs returns the ranges as a ServiceCIDR has them.
func (k *kubernetesService) cidrs() []string {
	var all []string
	for _, r := range k.ranges {
		all = append(all, r.Masked().String())
	}
	return all
}

// ensure reconciles the Service and its endpoints.
func (k *kubernetesService) ensure(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := k.ensureService(ctx); err != nil {
			return fmt.Errorf("the Service: %w", err)
		}
		addresses, err := k.addresses(ctx)
		if err != nil {
			return err
		}
		return k.ensureBackends(ctx, addresses)
	})
}

func (k *kubernetesService) ensureService(ctx context.Context) error {
	services := k.client.CoreV1().Services(metav1.NamespaceDefault)
	ports := []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: httpsPort, TargetPort: intstr.FromInt32(k.port)}}
	found, err := services.Get(ctx, kubernetesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = services.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: kubernetesName, Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: k.ranges[0].Masked().Addr().Next().String(),
				IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack), SessionAffinity: corev1.ServiceAffinityNone,
				Ports: ports,
			},
		}, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	}
	// If several servers listen on different ports, no port is right for all.
	if err != nil || k.peers != nil || equality.Semantic.DeepEqual(found.Spec.Ports, ports) {
		return err
	}
	found.Spec.Ports = ports
	_, err = services.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

// addresses returns the addresses of the API servers.
func (k *kubernetesService) addresses(ctx context.Context) ([]string, error) {
	if k.peers == nil {
		if k.address == nil {
			return nil, nil
		}
		return []string{k.address.String()}, nil
	}
	if k.address != nil {
		if err := k.peers.announce(ctx, k.address.String()); err != nil {
			return nil, err
		}
	}
	return k.peers.list(ctx)
}

// leave removes this server from the endpoints.
func (k *kubernetesService) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if k.address == nil {
		return nil
	}
	if err := k.peers.withdraw(ctx, k.address.String()); err != nil {
		return err
	}
	others, err := k.peers.list(ctx)
	if err != nil {
		return err
	}
	return k.ensureBackends(ctx, others)
}

// ensureBackends writes the Endpoints and the EndpointSlice of the Service, if they differ.
func (k *kubernetesService) ensureBackends(ctx context.Context, addresses []string) error {
	slices.Sort(addresses)
	return errors.Join(k.ensureEndpoints(ctx, addresses), k.ensureSlice(ctx, addresses))
}

func (k *kubernetesService) ensureEndpoints(ctx context.Context, addresses []string) error {
	var subsets []corev1.EndpointSubset
	if len(addresses) > 0 {
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: k.port}}}
		for _, address := range addresses {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: address})
		}
		subsets = []corev1.EndpointSubset{subset}
	}
	// The slice is not mirrored from the Endpoints.
	labels := map[string]string{discoveryv1.LabelSkipMirror: "true"}
	endpoints := k.client.CoreV1().Endpoints(metav1.NamespaceDefault)
	found, err := endpoints.Get(ctx, kubernetesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = endpoints.Create(ctx, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: kubernetesName, Labels: labels}, Subsets: subsets}, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	}
	if err != nil || maps.Equal(found.Labels, labels) && equality.Semantic.DeepEqual(found.Subsets, subsets) {
		return err
	}
	found.Labels, found.Subsets = labels, subsets
	_, err = endpoints.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

func (k *kubernetesService) ensureSlice(ctx context.Context, addresses []string) error {
	wanted := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: kubernetesName, Labels: map[string]string{discoveryv1.LabelServiceName: kubernetesName}},
		AddressType: discoveryv1.AddressType(serviceip.Family(k.ranges[0].Addr())),
	}
	for _, address := range addresses {
		if parsed, ok := serviceip.ParseAddress(address); ok && discoveryv1.AddressType(serviceip.Family(parsed)) == wanted.AddressType {
			wanted.Endpoints = append(wanted.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
		}
	}
	if len(wanted.Endpoints) > 0 {
		wanted.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: &k.port}}
	}
	all := k.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	found, err := all.Get(ctx, kubernetesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(ctx, wanted, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	}
	if err != nil || maps.Equal(found.Labels, wanted.Labels) &&
		equality.Semantic.DeepEqual(found.Endpoints, wanted.Endpoints) && equality.Semantic.DeepEqual(found.Ports, wanted.Ports) {
		return err
	}
	found.Labels, found.Endpoints, found.Ports = wanted.Labels, wanted.Endpoints, wanted.Ports
	_, err = all.Update(ctx, found, metav1.UpdateOptions{})
	return err
}
