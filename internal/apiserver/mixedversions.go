// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/peerproxy"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/servers"
)

// mixedVersions passes requests for resources that only servers of another version have on to one of them, and lists these resources
// in discovery, so that clients may use any server while one after the other is upgraded: KEP-4020,
// UnknownVersionInteroperabilityProxy. Resources of CRDs and of extension API servers are the same on all servers.
type mixedVersions struct {
	peerproxy.Interface
	leases informers.SharedInformerFactory
	// invalidate makes discovery merge the servers' lists again. merged is set while its list has resources of others.
	invalidate func()
	merged     atomic.Bool
}

// newMixedVersions returns nil if the server is the only one.
func newMixedVersions(c Config, g *genericapiserver.Config) (*mixedVersions, error) {
	if c.Leadership == nil {
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(g.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	kept, err := c.PKI.Keep(c.PKI.FrontProxyClient, nil)
	if err != nil {
		return nil, err
	}
	certificate := kept.Pair()
	connection := &transport.Config{TLS: transport.TLSConfig{
		CAData: c.PKI.Cluster.CertPEM, CertFile: certificate.CertFile, KeyFile: certificate.KeyFile, ReloadTLSFiles: true,
	}}
	leases := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = servers.Selector }))
	informer := leases.Coordination().V1().Leases()
	locations := locations{informer.Lister().Leases(metav1.NamespaceSystem)}
	proxy, err := peerproxy.NewPeerProxyHandler(servers.LeaseOf(c.Leadership.Name()), servers.Selector, informer, locations, g.Serializer, g.LoopbackClientConfig, connection)
	if err != nil {
		return nil, fmt.Errorf("requests for resources of other servers: %w", err)
	}
	return &mixedVersions{Interface: proxy, leases: leases, invalidate: func() {}}, nil
}

// wrap passes requests on. It follows authorization, as toLeader does.
func (m *mixedVersions) wrap(next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return m.WrapHandler(next)
}

// RegisterCacheInvalidationCallback implements peerproxy.Interface.
func (m *mixedVersions) RegisterCacheInvalidationCallback(invalidate func()) {
	m.invalidate = invalidate
	m.Interface.RegisterCacheInvalidationCallback(invalidate)
}

// aloneInterval is the time between two looks whether all other servers are gone.
const aloneInterval = time.Second

// GetPeerResources implements peerproxy.Interface.
func (m *mixedVersions) GetPeerResources() map[string][]apidiscoveryv2.APIGroupDiscovery {
	others := m.Interface.GetPeerResources()
	m.merged.Store(len(others) > 0)
	return others
}

// noticeAlone invalidates discovery when the last other server goes, until ctx is done. The library does so only while there are others.
func (m *mixedVersions) noticeAlone(ctx context.Context, clock clock.WithTicker) {
	ticker := clock.NewTicker(aloneInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if m.merged.Load() && len(m.Interface.GetPeerResources()) == 0 {
			m.invalidate()
		}
	}
}

// register makes the server list the resources of others, and follow them once it runs.
func (m *mixedVersions) register(s *Server, server *aggregatorapiserver.APIAggregator) error {
	if m == nil {
		return nil
	}
	if err := m.RegisterCRDInformerHandlers(s.definitions.Informer(), versionsOfCRD); err != nil {
		return err
	}
	if err := m.RegisterAPIServiceInformerHandlers(server.APIRegistrationInformers.Apiregistration().V1().APIServices().Informer(), versionOfExtension); err != nil {
		return err
	}
	return server.GenericAPIServer.AddPostStartHook("peer-discovery-cache-sync", func(hook genericapiserver.PostStartHookContext) error {
		m.leases.StartWithContext(hook)
		go m.RunPeerDiscoveryCacheSync(hook, 1)
		go m.RunPeerDiscoveryActiveGVTracker(hook)
		go m.RunPeerDiscoveryRefilter(hook)
		go m.noticeAlone(hook, s.clock)
		go func() {
			err := m.RunLocalDiscoveryCacheSync(hook.Done())
			if err == nil {
				err = m.WaitForCacheSync(hook.Done())
			}
			if err != nil && hook.Err() == nil {
				klog.FromContext(hook).Error(err, "Resources of servers of other versions are not served")
			}
		}()
		return nil
	})
}

// versionsOfCRD implements peerproxy.GVExtractor.
func versionsOfCRD(object any) (versions []schema.GroupVersion) {
	crd, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil
	}
	for _, version := range crd.Spec.Versions {
		if version.Served {
			versions = append(versions, schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name})
		}
	}
	return versions
}

// versionOfExtension implements peerproxy.GVExtractor for versions that extension API servers serve.
func versionOfExtension(object any) []schema.GroupVersion {
	service, ok := object.(*apiregistrationv1.APIService)
	if !ok || service.Spec.Service == nil {
		return nil
	}
	return []schema.GroupVersion{{Group: service.Spec.Group, Version: service.Spec.Version}}
}

// locations finds servers by their Leases. It implements reconcilers.PeerEndpointLeaseReconciler, whose other methods are for servers
// that store their addresses apart.
type locations struct {
	leases coordinationlisters.LeaseNamespaceLister
}

// GetEndpoint returns the host and port of the server with a Lease.
func (l locations) GetEndpoint(lease string) (string, error) {
	found, err := l.leases.Get(lease)
	if err != nil {
		return "", err
	}
	server := servers.Of(found)
	location, err := url.Parse(server.URL)
	if err != nil {
		return "", fmt.Errorf("the URL of server %s: %w", server.Name, err)
	}
	if _, _, err := net.SplitHostPort(location.Host); err != nil {
		return "", fmt.Errorf("the URL of server %s: %w", server.Name, err)
	}
	return location.Host, nil
}

// UpdateLease implements reconcilers.PeerEndpointLeaseReconciler.
func (locations) UpdateLease(string, string, []corev1.EndpointPort) error { return nil }

// RemoveLease implements reconcilers.PeerEndpointLeaseReconciler.
func (locations) RemoveLease(string) error { return nil }

// StopReconciling implements reconcilers.PeerEndpointLeaseReconciler.
func (locations) StopReconciling() {}

// Destroy implements reconcilers.PeerEndpointLeaseReconciler.
func (locations) Destroy() {}
