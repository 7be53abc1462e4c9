// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limitranger applies the LimitRanges of a namespace: it gives
// containers that ask for nothing the namespace's defaults, and refuses pods
// and claims which ask for less or more than is allowed.
package limitranger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Name is the plugin's name in the API server's configuration.
const Name = "LimitRanger"

const (
	// The cache may not have heard of a LimitRange that was created just before
	// the pod. So a namespace without any is asked for live, but not each time.
	liveLookupLife  = 30 * time.Second
	liveLookupsKept = 10000
)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	client kubernetes.Interface
	ranges listers.LimitRangeLister
	clock  clock.PassiveClock
	// live are the last live lookups, by namespace.
	live *lru.Cache
}

type lookup struct {
	expires time.Time
	ranges  []*corev1.LimitRange
}

var (
	_ admission.MutationInterface                  = &Plugin{}
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeClientSet       = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New(clock clock.PassiveClock) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), clock: clock, live: lru.New(liveLookupsKept)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	ranges := f.Core().V1().LimitRanges()
	p.ranges = ranges.Lister()
	p.SetReadyFunc(ranges.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil || p.ranges == nil {
		return fmt.Errorf("%s needs a client and informers", Name)
	}
	return nil
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(ctx, a, func(r *corev1.LimitRange, obj runtime.Object) error {
		if pod, ok := obj.(*corev1.Pod); ok {
			setDefaults(r, pod)
		}
		return nil
	})
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(ctx, a, func(r *corev1.LimitRange, obj runtime.Object) error {
		switch o := obj.(type) {
		case *corev1.Pod:
			return checkPod(r, o)
		case *corev1.PersistentVolumeClaim:
			return checkClaim(r, o)
		default:
			return nil
		}
	})
}

// each calls f with each LimitRange that a request must respect.
func (p *Plugin) each(ctx context.Context, a admission.Attributes, f func(*corev1.LimitRange, runtime.Object) error) error {
	if !concerns(a) || ending(a.GetOldObject()) {
		return nil
	}
	ranges, err := p.find(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if err := f(r, a.GetObject()); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// concerns says whether a request may ask for resources: new pods, pods that
// are resized in place, and claims. Other updates of pods cannot change them.
func concerns(a admission.Attributes) bool {
	switch a.GetKind().GroupKind() {
	case corev1.SchemeGroupVersion.WithKind("Pod").GroupKind():
		if a.GetOperation() == admission.Update {
			return a.GetSubresource() == "resize"
		}
		return a.GetSubresource() == ""
	case corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind():
		return a.GetSubresource() == ""
	default:
		return false
	}
}

// ending says whether an object is being deleted: its finalizers must get through.
func ending(old runtime.Object) bool {
	if old == nil {
		return false
	}
	m, err := meta.Accessor(old)
	return err == nil && m.GetDeletionTimestamp() != nil
}

// find returns the LimitRanges of a request's namespace.
func (p *Plugin) find(ctx context.Context, a admission.Attributes) ([]*corev1.LimitRange, error) {
	if !p.WaitForReady() {
		return nil, admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	namespace := a.GetNamespace()
	cached, err := p.ranges.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges", a.GetOperation(), a.GetResource()))
	}
	if len(cached) > 0 {
		// The first in the order of names gives the defaults.
		slices.SortFunc(cached, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
		return cached, nil
	}
	if known, ok := p.live.Get(namespace); ok && p.clock.Now().Before(known.(lookup).expires) {
		return known.(lookup).ranges, nil
	}
	list, err := p.client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	found := lookup{expires: p.clock.Now().Add(liveLookupLife)}
	for i := range list.Items {
		found.ranges = append(found.ranges, &list.Items[i])
	}
	p.live.Add(namespace, found)
	return found.ranges, nil
}
