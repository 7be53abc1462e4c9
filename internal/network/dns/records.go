// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// The indexes of the informers.
const (
	addressIndex = "dns.kindred.dev/address"
	serviceIndex = "dns.kindred.dev/service"
)

// records reads the objects of the shared informers. Nothing is kept twice.
type records struct {
	namespaces, services, slices cache.Indexer
	synced                       []cache.InformerSynced
}

// newRecords adds the indexes to the informers. The factory must be started afterwards.
func newRecords(shared informers.SharedInformerFactory) (*records, error) {
	namespaces := shared.Core().V1().Namespaces().Informer()
	services := shared.Core().V1().Services().Informer()
	endpoints := shared.Discovery().V1().EndpointSlices().Informer()
	if err := services.AddIndexers(cache.Indexers{addressIndex: serviceAddresses}); err != nil {
		return nil, err
	}
	if err := endpoints.AddIndexers(cache.Indexers{serviceIndex: serviceOf, addressIndex: sliceAddresses}); err != nil {
		return nil, err
	}
	return &records{
		namespaces: namespaces.GetIndexer(), services: services.GetIndexer(), slices: endpoints.GetIndexer(),
		synced: []cache.InformerSynced{namespaces.HasSynced, services.HasSynced, endpoints.HasSynced},
	}, nil
}

func (r *records) hasSynced() bool {
	return !slices.ContainsFunc(r.synced, func(synced cache.InformerSynced) bool { return !synced() })
}

func (r *records) hasNamespace(name string) bool {
	_, found, _ := r.namespaces.GetByKey(name)
	return found
}

// service returns a Service; nil if there is none.
func (r *records) service(namespace, name string) *corev1.Service {
	object, _, _ := r.services.GetByKey(namespace + "/" + name)
	service, _ := object.(*corev1.Service)
	return service
}

// slicesOf returns the EndpointSlices of a Service.
func (r *records) slicesOf(namespace, service string) []*discoveryv1.EndpointSlice {
	return find[discoveryv1.EndpointSlice](r.slices, serviceIndex, namespace+"/"+service)
}

// at returns the Services and the EndpointSlices that have an address.
func (r *records) at(address netip.Addr) ([]*corev1.Service, []*discoveryv1.EndpointSlice) {
	key := address.String()
	return find[corev1.Service](r.services, addressIndex, key), find[discoveryv1.EndpointSlice](r.slices, addressIndex, key)
}

func find[T any](indexer cache.Indexer, index, key string) []*T {
	objects, err := indexer.ByIndex(index, key)
	if err != nil {
		return nil
	}
	found := make([]*T, 0, len(objects))
	for _, object := range objects {
		if o, ok := object.(*T); ok {
			found = append(found, o)
		}
	}
	return found
}

func serviceAddresses(object any) ([]string, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return nil, nil
	}
	return canonical(service.Spec.ClusterIPs), nil
}

func serviceOf(object any) ([]string, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// sliceAddresses returns the addresses of a slice. Slices of no Service have no names, so their addresses
// are not indexed.
func sliceAddresses(object any) ([]string, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	var addresses []string
	for i := range slice.Endpoints {
		addresses = append(addresses, canonical(slice.Endpoints[i].Addresses)...)
	}
	return addresses, nil
}

// canonical returns IP addresses as netip.Addr prints them, and leaves out everything else.
func canonical(addresses []string) []string {
	out := make([]string, 0, len(addresses))
	for _, s := range addresses {
		if address, err := netip.ParseAddr(s); err == nil {
			out = append(out, address.String())
		}
	}
	return out
}

// isReady reports whether an endpoint has names. The controller of the slice sets the condition on all
// endpoints of a Service with publishNotReadyAddresses.
func isReady(e *discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }

var dashes = strings.NewReplacer(".", "-", ":", "-")

// hostLabel returns the label of an endpoint's address below the name of its Service: the hostname of
// the pod, or the address with dashes.
func hostLabel(e *discoveryv1.Endpoint, address netip.Addr) string {
	if host := ptr.Deref(e.Hostname, ""); host != "" {
		return host
	}
	label := dashes.Replace(address.String())
	if strings.HasSuffix(label, "-") {
		label += "0" // a label cannot end with a dash, and fd00:: is fd00::0
	}
	return label
}
