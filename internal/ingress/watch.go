// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"net/netip"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/ingress/compile"
)

// byService is the index of EndpointSlices by their Service.
const byService = "kindred.dev/ingress-service"

// register watches the API.
func (i *Ingress) register() error {
	f := i.options.Informers
	endpointSlices := f.Discovery().V1().EndpointSlices().Informer()
	if err := endpointSlices.AddIndexers(cache.Indexers{byService: func(o any) ([]string, error) {
		return []string{serviceOf(o)}, nil
	}}); err != nil {
		return err
	}
	i.endpoints = &endpoints{known: map[string]map[int32][]netip.AddrPort{}, services: f.Core().V1().Services().Lister(), slices: endpointSlices.GetIndexer()}
	i.secrets = coreinformers.NewFilteredSecretInformer(i.options.Client, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(v1.SecretTypeTLS)).String()
	})
	wakes := func(any) { i.changed() }
	return errors.Join(
		i.watch(f.Networking().V1().Ingresses().Informer(), sameIngress, wakes),
		i.watch(f.Networking().V1().IngressClasses().Informer(), nil, wakes),
		i.watch(f.Core().V1().Nodes().Informer(), sameAddresses, wakes),
		i.watch(f.Core().V1().Services().Informer(), sameService, func(o any) {
			svc := o.(*v1.Service)
			i.endpoints.forget(svc.Namespace + "/" + svc.Name)
			i.changed()
		}),
		i.watch(endpointSlices, nil, func(o any) { i.endpoints.forget(serviceOf(o)) }),
		i.watch(i.secrets, nil, func(o any) {
			i.certs.Forget(o.(*v1.Secret).UID)
			i.changed()
		}),
	)
}

// watch calls note for each object that is added, changed or deleted, with its old and new state. Updates for which
// same returns true are left out; a nil same leaves out none.
func (i *Ingress) watch(informer cache.SharedIndexInformer, same func(old, now any) bool, note func(any)) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note,
		UpdateFunc: func(old, now any) {
			if same == nil || !same(old, now) {
				note(old)
				note(now)
			}
		},
		DeleteFunc: func(o any) { note(last(o)) },
	})
	if err == nil {
		i.synced = append(i.synced, registration.HasSyncedChecker())
	}
	return err
}

// last returns the last known state of a deleted object.
func last(o any) any {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return o
}

func (i *Ingress) changed() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// sameIngress includes the status, so that one that another client has changed is corrected.
func sameIngress(old, now any) bool {
	a, b := old.(*networkingv1.Ingress), now.(*networkingv1.Ingress)
	return a.Generation == b.Generation && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Status, b.Status) &&
		a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero()
}

// sameService includes the status of Services that hold the address of a Gateway.
func sameService(old, now any) bool {
	a, b := old.(*v1.Service), now.(*v1.Service)
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		(ptr.Deref(b.Spec.LoadBalancerClass, "") != gatewayClass || equality.Semantic.DeepEqual(a.Status, b.Status))
}

func sameAddresses(old, now any) bool {
	return equality.Semantic.DeepEqual(old.(*v1.Node).Status.Addresses, now.(*v1.Node).Status.Addresses)
}

func serviceOf(o any) string {
	slice := o.(*discoveryv1.EndpointSlice)
	return slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
}

// endpoints has the endpoints of the Services that were asked for, until the Service or one of its slices changes.
type endpoints struct {
	services corelisters.ServiceLister
	slices   cache.Indexer
	mutex    sync.RWMutex
	known    map[string]map[int32][]netip.AddrPort
}

// of returns the endpoints of a port of a Service.
func (e *endpoints) of(service string, port int32) []netip.AddrPort {
	e.mutex.RLock()
	found, ok := e.known[service][port]
	e.mutex.RUnlock()
	if ok {
		return found
	}
	// The informers change before their handlers call forget. So whatever is read under the lock is either current
	// or forgotten soon.
	e.mutex.Lock()
	defer e.mutex.Unlock()
	namespace, name, _ := strings.Cut(service, "/")
	svc, err := e.services.Services(namespace).Get(name)
	if err != nil {
		return nil
	}
	var all []*discoveryv1.EndpointSlice
	slices, _ := e.slices.ByIndex(byService, service) // the index exists
	for _, o := range slices {
		all = append(all, o.(*discoveryv1.EndpointSlice))
	}
	if e.known[service] == nil {
		e.known[service] = map[int32][]netip.AddrPort{}
	}
	e.known[service][port] = compile.Endpoints(svc, port, all)
	return e.known[service][port]
}

// forget forgets the endpoints of a Service.
func (e *endpoints) forget(service string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.known, service)
}
