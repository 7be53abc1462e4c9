// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limitranger applies the LimitRanges of a namespace: it gives containers
// without requests or limits the namespace's defaults, and refuses pods and claims
// outside of its minimum and maximum.
package limitranger

import (
	"context"
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

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// Name is the plugin's name in the API server's configuration.
const Name = "LimitRanger"

const (
	// The informer may lack a LimitRange that was created just before the pod. If it
	// has none for a namespace, the plugin lists them in the API, and caches the result.
	liveLookupTTL  = 30 * time.Second
	maxLiveLookups = 10000
)

// Plugin is the admission plugin.
type Plugin struct {
	*informer.Handler[listers.LimitRangeLister]
	client kubernetes.Interface
	clock  clock.PassiveClock
	// live caches lookups in the API, by namespace.
	live *lru.Cache
}

type lookup struct {
	expires time.Time
	ranges  []*corev1.LimitRange
}

var (
	_ admission.MutationInterface            = &Plugin{}
	_ admission.ValidationInterface          = &Plugin{}
	_ initializer.WantsExternalKubeClientSet = &Plugin{}
)

// New returns the plugin.
func New(clock clock.PassiveClock) *Plugin {
	handler := informer.New(Name, func(f informers.SharedInformerFactory) informer.Informer[listers.LimitRangeLister] {
		return f.Core().V1().LimitRanges()
	}, admission.Create, admission.Update)
	return &Plugin{Handler: handler, clock: clock, live: lru.New(maxLiveLookups)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil {
		return fmt.Errorf("%s needs a client", Name)
	}
	return p.Handler.ValidateInitialization()
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

// each calls f with each LimitRange that applies to a request.
func (p *Plugin) each(ctx context.Context, a admission.Attributes, f func(*corev1.LimitRange, runtime.Object) error) error {
	if !isLimited(a) || isBeingDeleted(a.GetOldObject()) {
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

// isLimited reports whether a request may change resources: it creates a pod,
// resizes one in place, or writes a claim. Other updates of pods cannot.
func isLimited(a admission.Attributes) bool {
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

// isBeingDeleted reports whether an object has a deletion timestamp. Updates of such
// an object must pass, so that its finalizers can be removed.
func isBeingDeleted(old runtime.Object) bool {
	if old == nil {
		return false
	}
	m, err := meta.Accessor(old)
	return err == nil && m.GetDeletionTimestamp() != nil
}

// find returns the LimitRanges of a request's namespace.
func (p *Plugin) find(ctx context.Context, a admission.Attributes) ([]*corev1.LimitRange, error) {
	if err := p.WaitForSync(a); err != nil {
		return nil, err
	}
	namespace := a.GetNamespace()
	cached, err := p.Lister.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges", a.GetOperation(), a.GetResource()))
	}
	if len(cached) > 0 {
		// The first by name sets the defaults.
		slices.SortFunc(cached, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
		return cached, nil
	}
	if last, ok := p.live.Get(namespace); ok && p.clock.Now().Before(last.(lookup).expires) {
		return last.(lookup).ranges, nil
	}
	list, err := p.client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	found := lookup{expires: p.clock.Now().Add(liveLookupTTL)}
	for i := range list.Items {
		found.ranges = append(found.ranges, &list.Items[i])
	}
	p.live.Add(namespace, found)
	return found.ranges, nil
}
