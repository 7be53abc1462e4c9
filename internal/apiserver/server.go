// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	endpoints "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	clientrest "k8s.io/client-go/rest"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/admission"
	"github.com/kindred-project/kindred/internal/apiserver/inprocess"
	"github.com/kindred-project/kindred/internal/metrics"
	"github.com/kindred-project/kindred/internal/registry"
	"github.com/kindred-project/kindred/internal/registry/admissionregistration"
	"github.com/kindred-project/kindred/internal/registry/authentication"
	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/registry/resource"
)

// apiserverUser is the user of the server's own client, as upstream's loopback client.
var apiserverUser = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// Server is the API server.
type Server struct {
	inprocess inprocess.Server
	// direct is the direct chain: the API behind the filters that in-process requests need.
	direct    http.Handler
	deletions deletions
	writes    writes
	groups    []generic.Group
	// enabled are the versions and resources to serve, installed the versions that are served.
	enabled   *serverstorage.ResourceConfig
	installed sets.Set[schema.GroupVersion]
	scheme    *runtime.Scheme
	// external has only the versioned types, for OpenAPI, whose namer would publish the internal
	// ones too. It is client-go's scheme.
	external *runtime.Scheme
	// namer names the types in OpenAPI.
	namer     *endpoints.DefinitionNamer
	informers informers.SharedInformerFactory
	shared    sharedObjects
	// started is closed once the informers run. lifetime is the context of background work: it
	// begins with New, before there is the context of Run, and ends with the server.
	started  chan struct{}
	lifetime context.Context
	end      context.CancelFunc
	services *services
	policies *admission.Policies
	fairness *fairness
	metrics  *metrics.Collector
	// trust is the data of the ConfigMap for extension API servers.
	trust      map[string]string
	clock      clock.WithTicker
	traffic    traffic
	aggregator *aggregatorapiserver.APIAggregator
	// definitions is the informer of CustomResourceDefinitions of the server of custom resources.
	definitions crdinformers.CustomResourceDefinitionInformer
	boot        bootSteps
	// mixed is nil if the server is the only one.
	mixed *mixedVersions
	// reserve is nil with an external etcd, gate with the embedded one, memory without a memory limit.
	reserve *reserve
	gate    *storeGate
	memory  *memoryLimit
}

// New builds the chain of servers. Nothing is served before Run.
func New(c Config) (*Server, error) {
	s := &Server{external: scheme.Scheme, clock: c.Clock, started: make(chan struct{}), boot: newBootSteps(), deletions: deletions{}, writes: writes{}, installed: sets.New[schema.GroupVersion]()}
	// Traffic is measured in real time, even under a fake clock.
	s.traffic.clock = clock.RealClock{}
	s.lifetime, s.end = context.WithCancel(context.Background())
	if err := s.build(c); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// build builds the servers of custom resources, built-in groups and aggregation, which delegate to
// each other in the reverse order.
func (s *Server) build(c Config) error {
	client, err := kubernetes.NewForConfig(s.Config(apiserverUser))
	if err != nil {
		return err
	}
	s.informers = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(s.shared.transform))

	s.fairness = newFairness(c, client, s.informers)
	if s.services, err = newServices(s.lifetime, c, client, s.informers); err != nil {
		return fmt.Errorf("services: %w", err)
	}
	access, err := newAccess(s.lifetime, c, client, s.informers)
	if err != nil {
		return err
	}
	if s.trust, err = access.trust(); err != nil {
		return err
	}
	nodes, err := newNodeConnections(c.PKI, client, access.authorizer)
	if err != nil {
		return err
	}
	s.groups = registry.Groups(registry.Dependencies{
		Core:           core.Dependencies{Nodes: nodes, Tokens: access.issuer, Services: s.services.ServiceDependencies, Budgets: client.PolicyV1(), Components: components(c)},
		Authentication: authentication.Dependencies{Requests: access.authenticator, Audiences: access.audiences},
		Authorizer:     access.authorizer,
		Rules:          access.rules,
		Escalation:     access.escalation,
		Extending:      admissionregistration.Dependencies{Authorizer: access.authorizer, Client: client},
		Devices:        resource.Dependencies{Authorizer: access.authorizer, Namespaces: client.CoreV1(), Clock: c.Clock},
	})
	s.metrics = s.newCollector(c, nodes)
	s.groups = append(s.groups, s.ownershipGroup(c.Ownership, access.authorizer), metricsGroup(s.metrics))
	if s.enabled, err = enabledResources(s.groups, c.RuntimeConfig); err != nil {
		return fmt.Errorf("runtime-config: %w", err)
	}
	s.groups = withoutUnused(s.groups, s.enabled)
	s.reserve = newReserve(c)
	if s.scheme, err = newScheme(s.groups); err != nil {
		return err
	}
	g, err := s.genericConfig(c)
	if err != nil {
		return err
	}
	access.apply(g)
	if s.policies, err = admission.NewPolicies(s.informers, admissionregistration.ExcludedResources(), c.Clock); err != nil {
		return err
	}
	g.AdmissionControl, err = newAdmission(c, s.Config(apiserverUser), client, s.informers, access.authorizer, g, s.policies, extending(g, s.services.resolver))
	if err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	g.AdmissionControl = s.admitWithRoom(g.AdmissionControl)

	extensions, err := s.newExtensions(*g, c)
	if err != nil {
		return fmt.Errorf("custom resources: %w", err)
	}
	main, err := s.newMain(g, c, customResources{extensions.GenericAPIServer, g.Serializer})
	if err != nil {
		return fmt.Errorf("built-in groups: %w", err)
	}
	access.serveIssuer(main)
	serveSnapshot(main, c.Backend)
	s.serveDocuments(main, g, c.RuntimeConfig)
	s.aggregator, err = s.newAggregator(*g, c, main, extensions.Informers)
	if err != nil {
		return fmt.Errorf("aggregation: %w", err)
	}
	s.inprocess.Serve(s.aggregator.GenericAPIServer.Handler)
	return s.serveDirectly(s.aggregator.GenericAPIServer)
}

// Informers returns the server's informers. Other parts of the process share them, so that each
// object is decoded and stored once. Informers that they add run after StartInformers. Their
// objects are shared, with the watch caches as well, must not be changed, and have no managed fields.
func (s *Server) Informers() informers.SharedInformerFactory { return s.informers }

// StartInformers starts the informers that do not run yet. They stop with the server.
func (s *Server) StartInformers() { s.informers.StartWithContext(s.lifetime) }

// Serves reports whether a built-in resource is enabled.
func (s *Server) Serves(resource schema.GroupVersionResource) bool {
	return s.installed.Has(resource.GroupVersion()) && s.enabled.ResourceEnabled(resource)
}

// Busy reports whether clients other than the cluster's own parts are making requests.
func (s *Server) Busy() bool { return s.traffic.isBusy() }

// Scheme returns a scheme with the versioned types of every built-in group.
func (s *Server) Scheme() *runtime.Scheme { return s.external }

// Run serves until ctx is done, and then waits for requests in progress.
func (s *Server) Run(ctx context.Context) error {
	defer s.end()
	s.aggregator.GenericAPIServer.ShutdownTimeout = shutdownTimeout
	prepared, err := s.aggregator.PrepareRun()
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // creating and preparing a server takes long
		s.aggregator.GenericAPIServer.Destroy()
		return nil
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		<-ctx.Done()
		s.awaitStart()
		stop()
	}()
	return prepared.Run(running)
}

// awaitStart delays a stop until the post-start hook crd-informer-synced has succeeded: if the server
// stops during that hook, k8s.io/apiserver ends the process.
func (s *Server) awaitStart() {
	client, err := clientrest.HTTPClientFor(s.Config(apiserverUser))
	if err != nil {
		return
	}
	ticker := s.clock.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := s.clock.Now().Add(startLimit); s.clock.Now().Before(deadline); <-ticker.C() {
		response, err := client.Get(s.Config(apiserverUser).Host + "/readyz/poststarthook/crd-informer-synced")
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
	}
}

// startLimit is the time that a stop waits for the hook.
const startLimit = 5 * time.Second

// newMain returns the server of the built-in groups.
func (s *Server) newMain(g *genericapiserver.Config, c Config, next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
	g.SkipOpenAPIInstallation = true // serveDocuments does it
	main, err := g.Complete(s.informers).New("kube-apiserver", next)
	if err != nil {
		return nil, err
	}
	env := generic.Environment{Scheme: s.scheme, Options: g.RESTOptionsGetter, Clock: c.Clock, Declared: core.DeclaredOptions(), Gangs: s.ServesGangs()}
	built, err := s.install(main, g, env)
	if err != nil {
		return nil, err
	}
	s.shared.add(built)
	if err := main.AddBootSequenceHealthChecks(append(s.boot.checks(), cachesCheck(built))...); err != nil {
		return nil, err
	}
	if err := s.services.leaveAtStop(main); err != nil {
		return nil, err
	}
	if err := s.fairness.start(main); err != nil {
		return nil, err
	}
	return main, main.AddPostStartHook("start-informers", func(hook genericapiserver.PostStartHookContext) error {
		context.AfterFunc(hook, s.end)
		s.StartInformers()
		close(s.started)
		go s.startPolicies(hook)
		s.services.run(hook, s.boot)
		go s.collectMetrics(hook)
		if s.gate != nil {
			go s.gate.run(hook)
		}
		return nil
	})
}
