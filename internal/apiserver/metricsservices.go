// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	metricsapi "k8s.io/metrics/pkg/apis/metrics"
)

// servicesRetry is the pause after a failed write of an APIService.
const servicesRetry = time.Second

// isReplaceable reports whether users may delegate a built-in group to another server.
func isReplaceable(group string) bool { return group == metricsapi.GroupName }

// metricsServices keeps the APIServices of metrics.k8s.io. They are not kept by k8s.io/kube-aggregator's
// autoregister controller, which would restore them at each start, because users may apply those of
// metrics-server or of another adapter over them.
type metricsServices struct {
	want    []*apiregistrationv1.APIService
	known   apiregistrationinformers.APIServiceInformer
	handled cache.ResourceEventHandlerRegistration
	client  apiregistrationclient.APIServiceInterface
}

// serveMetrics creates the missing APIServices at the start.
func (s *Server) serveMetrics(server *genericapiserver.GenericAPIServer, known apiregistrationinformers.APIServiceInformer, client clientset.Interface) error {
	m := &metricsServices{known: known, client: client.ApiregistrationV1().APIServices()}
	for _, group := range s.groups {
		for i, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Name}
			if isReplaceable(group.Name) && s.installed.Has(gv) {
				m.want = append(m.want, apiService(gv, group.Priority, int32(metricsVersionPriority-i)))
			}
		}
	}
	changed := make(chan struct{}, 1)
	see := func(object any) {
		if service, ok := object.(*apiregistrationv1.APIService); ok && isReplaceable(service.Spec.Group) {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
	var err error
	m.handled, err = known.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }})
	if err != nil {
		return err
	}
	return server.AddPostStartHook("metrics-apiservices", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			if !cache.WaitForCacheSync(hook.Done(), m.handled.HasSynced) {
				return
			}
			m.retry(hook, s, m.create)
			for {
				select {
				case <-hook.Done():
					return
				case <-changed:
					m.retry(hook, s, m.yield)
				}
			}
		}()
		return nil
	})
}

// retry calls a function each second until it succeeds.
func (*metricsServices) retry(ctx context.Context, s *Server, do func(context.Context) error) {
	for ctx.Err() == nil {
		err := do(ctx)
		if err == nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Cannot keep the APIServices of metrics.k8s.io, will retry")
		select {
		case <-ctx.Done():
		case <-s.clock.After(servicesRetry):
		}
	}
}

// create creates missing APIServices, unless the group is delegated, and removes those of versions that
// are no longer served.
func (m *metricsServices) create(ctx context.Context) error {
	served := map[string]bool{}
	if !delegates(m.known) {
		for _, service := range m.want {
			served[service.Name] = true
			if _, err := m.known.Lister().Get(service.Name); err == nil {
				continue
			}
			if _, err := m.client.Create(ctx, service, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	}
	return m.remove(ctx, func(name string) bool { return !served[name] })
}

// yield removes the APIServices of this server once a user has delegated a version: clients that prefer
// another version would otherwise get metrics of another source.
func (m *metricsServices) yield(ctx context.Context) error {
	if !delegates(m.known) {
		return nil
	}
	return m.remove(ctx, func(string) bool { return true })
}

func (m *metricsServices) remove(ctx context.Context, which func(name string) bool) error {
	for _, service := range metricsServicesOf(m.known) {
		if service.Spec.Service != nil || !which(service.Name) {
			continue
		}
		err := m.client.Delete(ctx, service.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(service.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// delegates reports whether a version of metrics.k8s.io is delegated to another server.
func delegates(known apiregistrationinformers.APIServiceInformer) bool {
	for _, service := range metricsServicesOf(known) {
		if service.Spec.Service != nil {
			return true
		}
	}
	return false
}

func metricsServicesOf(known apiregistrationinformers.APIServiceInformer) []*apiregistrationv1.APIService {
	all, err := known.Lister().List(labels.Everything())
	if err != nil { // a lister of a cache returns none
		return nil
	}
	var services []*apiregistrationv1.APIService
	for _, service := range all {
		if isReplaceable(service.Spec.Group) {
			services = append(services, service)
		}
	}
	return services
}
