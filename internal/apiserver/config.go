// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	definitions "github.com/kindred-project/kindred/internal/apiserver/openapi"
	"github.com/kindred-project/kindred/internal/auth/audit"
	"github.com/kindred-project/kindred/internal/auth/authentication"
	"github.com/kindred-project/kindred/internal/auth/authorization"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/ownership/review"
	"github.com/kindred-project/kindred/internal/storage"
)

// Config is what the API server is made from: plain values.
type Config struct {
	Backend *storage.Backend
	PKI     *pki.PKI
	// Listener accepts connections for the API; Names are what its
	// certificate is for.
	Listener net.Listener
	Names    pki.Names
	// AdvertiseAddress is where pods find the API: the endpoint of the Service
	// default/kubernetes.
	AdvertiseAddress net.IP
	AdvertisePort    int
	// ServiceCIDR is the range that ClusterIPs are taken from.
	ServiceCIDR netip.Prefix
	// ReserveDisk is how many bytes must stay free on the disk that holds
	// DataDir, and with it the embedded etcd, for writes to be accepted.
	ReserveDisk uint64
	DataDir     string
	// Authentication and Authorization are who outside of the cluster has a say in
	// who may come in. The zero values are nobody.
	Authentication authentication.Config
	Authorization  authorization.Config
	// Audit is the record that is kept of requests.
	Audit audit.Config
	// Encryption is what encrypts values in etcd.
	Encryption storage.Encryption
	// RuntimeConfig turns versions and resources of the built-in groups on and off, as upstream's
	// --runtime-config.
	RuntimeConfig map[string]string
	// Ownership answers the reviews of ownership.kindred.dev.
	Ownership *review.Reviews
	// ReadyChecks are added to /readyz.
	ReadyChecks []healthz.HealthChecker
	Clock       clock.WithTicker
}

// maxInFlight bounds how many requests are worked on at a time; watches do not
// count. More than this only queue for the processors.
const maxInFlight = 2000

// genericConfig is what the three servers share.
func (s *Server) genericConfig(c Config) (*genericapiserver.Config, error) {
	codecs := serializer.NewCodecFactory(s.scheme)
	g := genericapiserver.NewConfig(codecs)
	g.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	g.LoopbackClientConfig = s.Config(apiserverUser)
	g.EnableProfiling = false
	g.MaxRequestsInFlight = maxInFlight
	g.MaxMutatingRequestsInFlight = maxInFlight
	g.FlowControl = s.fairness
	g.ShutdownSendRetryAfter = false
	g.PublicAddress = c.AdvertiseAddress
	g.LongRunningFunc = filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	g.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	g.ReadyzChecks = append(g.ReadyzChecks, c.ReadyChecks...)
	if s.reserve != nil {
		g.ReadyzChecks = append(g.ReadyzChecks, s.reserve.readyCheck())
	}
	if c.Backend.Shared() {
		s.gate = newStoreGate(c.Backend.Check, c.Clock, codecs)
	}
	g.BuildHandlerChainFunc = func(handler http.Handler, g *genericapiserver.Config) http.Handler {
		guarded := func(handler http.Handler) http.Handler {
			handler = limitNesting(s.traffic.wrap(nameDeleters(handler)), g.MaxRequestBodyBytes, g.LongRunningFunc, codecs)
			if s.gate == nil {
				return handler
			}
			return s.gate.wrap(handler, g.LongRunningFunc)
		}
		// In the end the aggregator's, which is built last and stands in front.
		s.direct = directChain(guarded(s.deletions.wrap(handler, s.isElsewhere)), g)
		return genericapiserver.DefaultBuildHandlerChain(guarded(handler), g)
	}
	g.MergedResourceConfig = s.enabled

	namer := openapi.NewDefinitionNamer(s.external, extensionsScheme(), aggregatorScheme(), ownershipScheme())
	g.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(allDefinitions, namer)
	g.OpenAPIConfig.Info.Title = "Kubernetes"
	g.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(allDefinitions, namer)
	g.OpenAPIV3Config.Info.Title = "Kubernetes"

	plugins, err := c.Backend.Encrypt(s.lifetime, c.Encryption, g.APIServerID)
	if err != nil {
		return nil, err
	}
	g.HealthzChecks = append(g.HealthzChecks, plugins...)
	g.ReadyzChecks = append(g.ReadyzChecks, plugins...)
	factory := storageFactory(s.scheme, codecs)
	factory.APIResourceConfigSource = g.MergedResourceConfig
	factory.StorageConfig.StorageObjectCountTracker = g.StorageObjectCountTracker
	g.RESTOptionsGetter = storage.Resources{Backend: c.Backend, Factory: factory, Counts: g.StorageObjectCountTracker}

	if err := c.Audit.Apply(g); err != nil {
		return nil, err
	}
	certificate, err := newServingCertificate(c)
	if err != nil {
		return nil, err
	}
	g.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: c.Listener,
		Cert:     certificate,
		// As upstream's kube-apiserver: one connection carries many watches.
		HTTP2MaxStreamsPerConnection: 1000,
	}
	return g, nil
}

// storageFactory stores every built-in resource as protobuf, under upstream's
// keys. Both groups that serve Events share one place.
func storageFactory(scheme *runtime.Scheme, codecs serializer.CodecFactory) *serverstorage.DefaultStorageFactory {
	encoding := serverstorage.NewDefaultResourceEncodingConfig(scheme)
	factory := serverstorage.NewDefaultStorageFactory(
		*storagebackend.NewDefaultConfig(storage.Prefix, nil), runtime.ContentTypeProtobuf, codecs, encoding, nil,
		map[schema.GroupResource]string{
			{Resource: "nodes"}:                                 "minions",
			{Resource: "endpoints"}:                             "services/endpoints",
			{Resource: "services"}:                              "services/specs",
			{Resource: "replicationcontrollers"}:                "controllers",
			{Group: "networking.k8s.io", Resource: "ingresses"}: "ingress",
		})
	factory.AddCohabitatingResources(
		schema.GroupResource{Resource: "events"},
		schema.GroupResource{Group: "events.k8s.io", Resource: "events"})
	return factory
}

// sharedInformers feed the parts of the server itself: authorizers, admission,
// authenticators. What they never read is not kept.
func sharedInformers(client kubernetes.Interface) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(dropManagedFields))
}

func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

var allDefinitions = mergeDefinitions(definitions.GetOpenAPIDefinitions)

// shutdownTimeout is how long running requests may take once the server stops.
const shutdownTimeout = time.Second
