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
func (t *term) newManager() (manager.Manager, error) {
	return manager.New(configFor(t.api, controllerUser), manager.Options{
		Scheme:         scheme.Scheme,
		MapperProvider: newMapper(scheme.Scheme),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: false, // the cluster elects the server that runs the manager
		// Several clusters in one process have controllers of the same names.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache: cache.Options{
			// No controller needs managed fields.
			DefaultTransform: cache.TransformStripManagedFields(),
			NewInformer:      t.caches.Watch(scheme.Scheme, newInformer(t.server)),
		},
	})
}

// addControllers registers every controller under its own identity.
func (t *term) addControllers(mgr manager.Manager) error {
	tokens, err := serviceaccount.NewKeys(t.keys.ServiceAccountKey)
	if err != nil {
		return err
	}
	options := controllers.Options{CA: t.keys.Cluster.CertPEM, Sign: t.keys.Cluster.Sign, Token: tokens.LegacyToken, TerminatedPods: t.config.TerminatedPods, LocalPath: t.volumeNodes(), PodRanges: t.config.podRanges(), LoadBalancers: t.config.loadBalancers(), Gangs: t.server.ServesGangs()}
	for _, controller := range controllers.All(options) {
		if !controller.Needs.Empty() && !t.server.Serves(controller.Needs) {
			continue
		}
		as := controllerIdentity(controller.Name)
		if controller.Root {
			as = controllerUser
		}
		env, err := t.environment(mgr, as, cmp.Or(controller.Source, controller.Name))
		if err != nil {
			return err
		}
		if err := controller.Add(env); err != nil {
			return fmt.Errorf("controller %s: %w", controller.Name, err)
		}
	}
	return nil
}

func (t *term) environment(mgr manager.Manager, as part.Identity, source string) (control.Env, error) {
	config := configFor(t.api, as)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return jsonApply{next} })
	writer, err := client.New(config, client.Options{
		Scheme: scheme.Scheme, Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return control.Env{}, err
	}
	live, err := client.New(configFor(t.api, as), client.Options{Scheme: scheme.Scheme, Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return control.Env{}, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(configFor(t.api, as))
	if err != nil {
		return control.Env{}, err
	}
	events, err := t.recorder(as, source)
	if err != nil {
		return control.Env{}, err
	}
	return control.Env{Manager: mgr, Client: podClient{writer, pods.Cached{Cache: mgr.GetCache()}, t.directAs(as)}, Live: live, Config: configFor(t.api, as), Discovery: served, Events: events, Clock: t.config.Clock, Starts: &t.controllerStarts}, nil
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
func (t *term) recorder(as part.Identity, component string) (record.EventRecorder, error) {
	return part.Recorder(t.running.Context(), configFor(t.api, as), component)
}

// newCollector returns the garbage collector.
func (t *term) newCollector() (*collector.Collector, error) {
	as := controllerIdentity(collector.Name)
	objects, err := collector.NewClient(configFor(t.api, as))
	if err != nil {
		return nil, err
	}
	resources, err := discovery.NewDiscoveryClientForConfig(configFor(t.api, as))
	if err != nil {
		return nil, err
	}
	events, err := t.recorder(as, collector.EventSource)
	if err != nil {
		return nil, err
	}
	return collector.New(collector.Options{
		Metadata: objects, Discovery: resources, Served: t.server.AwaitDefinitions, Events: events, Clock: t.config.Clock,
		Busy: t.busy, Records: t.backend.Records(),
	}), nil
}

// busy reports whether clients other than the cluster's own parts are making requests, to this server or to another one.
func (t *term) busy() bool {
	return t.server.Busy() || t.traffic != nil && t.traffic.Busy()
}

// connectReviews connects the ownership reviews to the collector's graph. The collector sees
// everything; the reviews decide what a caller sees.
func (t *term) connectReviews(known *collector.Collector) error {
	config := configFor(t.api, controllerIdentity(collector.Name))
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	t.reviews.Connect(review.Sources{
		Collector: known, Metadata: known.Metadata, Objects: objects, Discovery: known.Discovery,
		Records: t.backend.Records(), History: t.backend.History(),
		ConfigFor: func(caller user.Info, agent string) *rest.Config {
			return configFor(t.api, part.Identity{Info: caller, Agent: agent})
		},
		Seen:  t.seen,
		Clock: t.config.Clock,
	})
	return nil
}

// seen reports whether the controllers' caches have reached a resource version of a kind, and whether
// they have the kind. Until all controllers have started, which a start does not wait for, every kind
// may be one of theirs.
func (t *term) seen(kind schema.GroupKind, resourceVersion string) (seen, known bool) {
	if !t.controllerStarts.Complete() {
		return false, true
	}
	return t.caches.Seen(kind, resourceVersion)
}
