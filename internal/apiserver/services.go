// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/serviceip"
	"github.com/kindred-project/kindred/internal/storage"
)

// services has what the server does for Services beyond serving the kind.
type services struct {
	core.ServiceDependencies
	// resolver finds an endpoint of the Services in webhooks and APIServices.
	resolver aggregatorapiserver.ServiceResolver

	repair *serviceip.Repair
	// settled is the revision of the store up to which all writes are complete; 0 if other servers
	// write to the store.
	settled uint64
	// kubernetes maintains the Service default/kubernetes.
	kubernetes *kubernetesService
	clock      clock.WithTicker
}

func newServices(ctx context.Context, c Config, client kubernetes.Interface, shared informers.SharedInformerFactory) (*services, error) {
	slices, err := proxy.NewEndpointSliceIndexerGetter(shared.Discovery().V1().EndpointSlices())
	if err != nil {
		return nil, err
	}
	resources, err := coreResources(c.Backend)
	if err != nil {
		return nil, err
	}
	ports, err := serviceip.OpenPorts(resources)
	if err != nil {
		return nil, err
	}
	addresses := serviceip.NewAddresses(client.NetworkingV1(), shared.Networking().V1())
	kubernetes, err := newKubernetesService(c, client, resources)
	if err != nil {
		return nil, err
	}
	var settled uint64
	if !c.Backend.Shared() {
		if settled, err = c.Backend.Revision(context.Background()); err != nil {
			return nil, err
		}
	}
	recorders, err := repairEvents(ctx, client)
	if err != nil {
		return nil, err
	}
	return &services{
		ServiceDependencies: core.ServiceDependencies{
			Families:  families(c.ServiceCIDRs),
			Addresses: addresses,
			Ports:     ports,
			Slices:    slices,
			Pods:      client.CoreV1(),
		},
		resolver:   aggregatorapiserver.NewEndpointServiceResolver(shared.Core().V1().Services().Lister(), slices),
		repair:     serviceip.NewRepair(client.CoreV1(), addresses, ports, recorders),
		settled:    settled,
		kubernetes: kubernetes,
		clock:      c.Clock,
	}, nil
}

// families returns the IP families of ranges.
func families(ranges []netip.Prefix) []corev1.IPFamily {
	var all []corev1.IPFamily
	for _, r := range ranges {
		all = append(all, serviceip.Family(r.Addr()))
	}
	return all
}

// repairEvents returns recorders of the problems that are found with Services. They run until ctx
// is done.
func repairEvents(ctx context.Context, client kubernetes.Interface) (serviceip.Recorders, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return serviceip.Recorders{}, err
	}
	return serviceip.Recorders{
		Addresses: broadcaster.NewRecorder(scheme.Scheme, serviceip.AddressReporter),
		Ports:     broadcaster.NewRecorder(scheme.Scheme, serviceip.PortReporter),
	}, nil
}

// coreResources returns the storage options of core objects that no endpoint serves.
func coreResources(backend *storage.Backend) (storage.Resources, error) {
	protobuf, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return storage.Resources{}, errors.New("the core group has no protobuf serializer")
	}
	version := corev1.SchemeGroupVersion
	codec := scheme.Codecs.CodecForVersions(protobuf.Serializer, scheme.Codecs.UniversalDeserializer(), version, version)
	return libraryResources(backend, genericapiserver.Config{}, codec, version), nil
}

// ensure prepares the store for Services at the start. Failures are logged and retried later; they
// do not keep the server from serving.
func (s *services) ensure(ctx context.Context, boot bootSteps) error {
	if err := s.kubernetes.ensureRange(ctx); err != nil {
		return err
	}
	boot.pass(stepServiceRange)
	if err := s.repair.Start(ctx, s.settled); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot compare the addresses and ports of Services with their allocations, will retry")
	} else {
		boot.pass(stepServices)
	}
	if err := s.kubernetes.ensure(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot update the Service default/kubernetes, will retry")
	} else {
		boot.pass(stepKubernetes)
	}
	return nil
}

// run runs the background work for Services until ctx is done.
func (s *services) run(ctx context.Context, boot bootSteps) {
	go s.repair.Run(ctx, s.clock, boot.passed(stepServices))
	go s.kubernetes.run(ctx, s.clock, boot.passed(stepKubernetes))
}

// leaveAtStop removes this server from the endpoints of the API when it stops, if there are other servers.
func (s *services) leaveAtStop(main *genericapiserver.GenericAPIServer) error {
	if s.kubernetes.peers == nil {
		return nil
	}
	return main.AddPreShutdownHook("leave-kubernetes-service", s.kubernetes.leave)
}
