// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	endpoints "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/audit"
	"github.com/kindred-project/kindred/internal/auth/authentication"
	"github.com/kindred-project/kindred/internal/auth/authorization"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/node/stats"
	"github.com/kindred-project/kindred/internal/ownership/review"
	"github.com/kindred-project/kindred/internal/storage"
)

// Config configures the API server.
type Config struct {
	Backend *storage.Backend
	PKI     *pki.PKI
	// Listener accepts connections to the API. Names are in its certificate.
	Listener net.Listener
	Names    pki.Names
	// AdvertiseAddress is the API's address for pods: the endpoint of the Service
	// default/kubernetes.
	AdvertiseAddress net.IP
	AdvertisePort    int
	// ServiceCIDRs are the ranges of ClusterIPs: one, or one of each IP family. The first is that of Services that
	// ask for no family, and has the address of the API.
	ServiceCIDRs []netip.Prefix
	// ReserveDisk is how many bytes must stay free on the disk of DataDir, which has the embedded
	// etcd. With less, writes are refused.
	ReserveDisk uint64
	DataDir     string
	// Authentication and Authorization configure services outside of the cluster. The zero values
	// configure none.
	Authentication authentication.Config
	Authorization  authorization.Config
	// Audit configures the audit log.
	Audit audit.Config
	// Encryption configures the encryption of values in etcd.
	Encryption storage.Encryption
	// RuntimeConfig enables and disables versions and resources of the built-in groups, as
	// upstream's --runtime-config.
	RuntimeConfig map[string]string
	// Ownership answers the reviews of ownership.kindred.dev.
	Ownership *review.Reviews
	// Leadership tells which of several servers leads; nil if this one is the only one.
	Leadership Leadership
	// SimulatedStats returns the source of what a simulated node and its pods use; nil if the node is not
	// simulated by this process. Simulated nodes have no address that could be connected to.
	SimulatedStats func(node string) stats.Source
	// ReadyChecks are added to /readyz.
	ReadyChecks []healthz.HealthChecker
	// Flags are the flags of the program and their values, for /flagz; if they are nil, it is not served.
	Flags map[string]string
	Clock clock.WithTicker
}

// maxInFlight is how many requests, except watches, are processed at a time. More would only wait
// for processors.
const maxInFlight = 2000

// genericConfig returns the configuration that the three servers share.
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
	g.LongRunningFunc = longRunning(filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward")))
	g.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	if c.Flags != nil {
		g.Flagz = flags(c.Flags)
	}
	addStoreChecks(g, c)
	g.AddReadyzChecks(c.ReadyChecks...)
	if s.reserve != nil {
		g.ReadyzChecks = append(g.ReadyzChecks, s.reserve.readyCheck())
	}
	s.memory = newMemoryLimit(needs{stats: c.Backend.Stats, maxBody: g.MaxRequestBodyBytes})
	if c.Backend.Shared() {
		s.gate = newStoreGate(c.Backend.Check, c.Clock, codecs)
	}
	forward, err := newToLeader(c, codecs)
	if err != nil {
		return nil, err
	}
	if s.mixed, err = newMixedVersions(c, g); err != nil {
		return nil, err
	}
	g.BuildHandlerChainFunc = func(handler http.Handler, g *genericapiserver.Config) http.Handler {
		guarded := func(handler http.Handler) http.Handler {
			handler = forward(s.mixed.wrap(handler))
			handler = limitNesting(s.traffic.wrap(nameDeleters(handler)), g.MaxRequestBodyBytes, g.LongRunningFunc, codecs)
			if s.memory != nil {
				handler = s.memory.wrap(handler, codecs)
			}
			if s.gate == nil {
				return handler
			}
			return s.gate.wrap(handler, g.LongRunningFunc)
		}
		// Called for each server. The last one is the aggregator, the first of the chain.
		s.direct = directChain(guarded(s.writes.wrap(s.deletions.wrap(handler, s.isElsewhere), s.isElsewhere)), g)
		handler = s.writes.wrap(handler, s.isElsewhere) // parts may write objects before the direct chain is used
		return genericapiserver.DefaultBuildHandlerChain(sendLists(guarded(handler)), g)
	}
	g.MergedResourceConfig = s.enabled
	g.EquivalentResourceRegistry = runtime.NewEquivalentResourceRegistryWithIdentity(s.storedAs)

	s.namer = endpoints.NewDefinitionNamer(s.external, extensionsScheme(), aggregatorScheme(), ownershipScheme(), metricsScheme())
	s.describe(g, s.openAPIDefinitions())

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
		// As kube-apiserver: one connection has many watches.
		HTTP2MaxStreamsPerConnection: 1000,
	}
	return g, nil
}

// flags are values of flags by name.
type flags map[string]string

// GetFlagz implements flagz.Reader.
func (f flags) GetFlagz() map[string]string { return f }

// storageFactory stores every built-in resource as protobuf, under upstream's keys. The Events of
// both groups have the same keys.
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

// shutdownTimeout is the time that requests in progress may take when the server stops.
const shutdownTimeout = time.Second
