// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kindred-project/kindred/internal/apiserver"
	"github.com/kindred-project/kindred/internal/auth/serviceaccount"
	"github.com/kindred-project/kindred/internal/controllers"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
	"github.com/kindred-project/kindred/internal/ownership/collector"
	"github.com/kindred-project/kindred/internal/ownership/review"
	"github.com/kindred-project/kindred/internal/part"
)

// newManager returns the manager that runs all controllers on one cache, whose informers are
// registered in caches.
func newManager(server *apiserver.Server, caches *controllers.Caches) (manager.Manager, error) {
	return manager.New(configFor(server, controllerUser), manager.Options{
		Scheme:         scheme.Scheme,
		MapperProvider: newMapper(scheme.Scheme),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: false,
		// Several clusters in one process have controllers of the same names.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache: cache.Options{
			// No controller needs managed fields.
			DefaultTransform: cache.TransformStripManagedFields(),
			NewInformer:      caches.Watch(scheme.Scheme, newInformer(server)),
		},
	})
}

// addControllers registers every controller under its own identity.
func (c *Cluster) addControllers(mgr manager.Manager) error {
	tokens, err := serviceaccount.NewKeys(c.keys.ServiceAccountKey)
	if err != nil {
		return err
	}
	options := controllers.Options{CA: c.keys.Cluster.CertPEM, Sign: c.keys.Cluster.Sign, Token: tokens.LegacyToken, TerminatedPods: c.config.TerminatedPods, LocalPath: c.config.volumeNodes(), PodRanges: c.config.podRanges(), LoadBalancers: c.config.loadBalancers(), Gangs: c.server.ServesGangs()}
	for _, controller := range controllers.All(options) {
		if !controller.Needs.Empty() && !c.server.Serves(controller.Needs) {
			continue
		}
		as := controllerIdentity(controller.Name)
		if controller.Root {
			as = controllerUser
		}
		env, err := c.environment(mgr, as, cmp.Or(controller.Source, controller.Name))
		if err != nil {
			return err
		}
		if err := controller.Add(env); err != nil {
			return fmt.Errorf("controller %s: %w", controller.Name, err)
		}
	}
	return nil
}

func (c *Cluster) environment(mgr manager.Manager, as part.Identity, source string) (control.Env, error) {
	config := configFor(c.server, as)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return jsonApply{next} })
	writer, err := client.New(config, client.Options{
		Scheme: scheme.Scheme, Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return control.Env{}, err
	}
	live, err := client.New(configFor(c.server, as), client.Options{Scheme: scheme.Scheme, Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return control.Env{}, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(configFor(c.server, as))
	if err != nil {
		return control.Env{}, err
	}
	events, err := c.recorder(as, source)
	if err != nil {
		return control.Env{}, err
	}
	return control.Env{Manager: mgr, Client: podClient{writer, pods.Cached{Cache: mgr.GetCache()}, direct{c.server, as}}, Live: live, Config: configFor(c.server, as), Discovery: served, Events: events, Clock: c.config.Clock, Starts: &c.controllerStarts}, nil
}

// jsonApply requests JSON responses to server-side apply, because controller-runtime decodes only
// those and the in-process server prefers protobuf.
type jsonApply struct{ http.RoundTripper }

func (j jsonApply) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType) {
		req = req.Clone(req.Context())
		req.Header.Set("Accept", runtime.ContentTypeJSON)
	}
	return j.RoundTripper.RoundTrip(req)
}

// recorder returns a recorder that writes events as the given user, with component as their
// source, as long as the parts run.
func (c *Cluster) recorder(as part.Identity, component string) (record.EventRecorder, error) {
	return part.Recorder(c.parts.Context(), configFor(c.server, as), component)
}

// newCollector returns the garbage collector.
func (c *Cluster) newCollector() (*collector.Collector, error) {
	as := controllerIdentity(collector.Name)
	objects, err := collector.NewClient(configFor(c.server, as))
	if err != nil {
		return nil, err
	}
	resources, err := discovery.NewDiscoveryClientForConfig(configFor(c.server, as))
	if err != nil {
		return nil, err
	}
	events, err := c.recorder(as, collector.EventSource)
	if err != nil {
		return nil, err
	}
	return collector.New(collector.Options{
		Metadata: objects, Discovery: resources, Served: c.server.AwaitDefinitions, Events: events, Clock: c.config.Clock,
		Busy: c.server.Busy, Records: c.backend.Records(),
	}), nil
}

// connectReviews connects the ownership reviews to the collector's graph. The collector sees
// everything; the reviews decide what a caller sees.
func (c *Cluster) connectReviews(known *collector.Collector) error {
	config := configFor(c.server, controllerIdentity(collector.Name))
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c.reviews.Connect(review.Sources{
		Collector: known, Metadata: known.Metadata, Objects: objects, Discovery: known.Discovery,
		Records: c.backend.Records(), History: c.backend.History(),
		ConfigFor: func(caller user.Info, agent string) *rest.Config {
			return configFor(c.server, part.Identity{Info: caller, Agent: agent})
		},
		Seen:  c.seen,
		Clock: c.config.Clock,
	})
	return nil
}

// seen reports whether the controllers' caches have reached a resource version of a kind, and whether
// they have the kind. Until all controllers have started, which a start does not wait for, every kind
// may be one of theirs.
func (c *Cluster) seen(kind schema.GroupKind, resourceVersion string) (seen, known bool) {
	if !c.controllerStarts.Complete() {
		return false, true
	}
	return c.caches.Seen(kind, resourceVersion)
}
