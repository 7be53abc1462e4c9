// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// policiesLimit is how long a request waits for the policies at the start of the server, as in k8s.io/apiserver.
const policiesLimit = 10 * time.Second

var errPoliciesNotReady = errors.New("not yet ready to handle request")

// Policies are the plugins that apply the policies of users. They start when their informers have synced: by themselves they start
// when they are created, and look at their informers every 100 ms, so that the first request of a new server waits for them.
type Policies struct {
	mutating   *mutatingpolicy.Plugin
	validating *validatingpolicy.Plugin
	// synced are the informers that must have synced before the plugins start.
	synced   []cache.DoneChecker
	excluded sets.Set[schema.GroupResource]
	clock    clock.Clock
	started  chan struct{}
}

// NewPolicies returns the plugins and adds the informers that they need. The plugins do not apply to excluded resources.
func NewPolicies(shared informers.SharedInformerFactory, excluded []schema.GroupResource, c clock.Clock) (*Policies, error) {
	validating, err := validatingpolicy.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	mutating, err := mutatingpolicy.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	mutating.SetExcludedAdmissionResources(excluded)
	validating.SetExcludedAdmissionResources(excluded)
	v1 := shared.Admissionregistration().V1()
	synced := []cache.DoneChecker{
		v1.MutatingAdmissionPolicies().Informer().HasSyncedChecker(), v1.MutatingAdmissionPolicyBindings().Informer().HasSyncedChecker(),
		v1.ValidatingAdmissionPolicies().Informer().HasSyncedChecker(), v1.ValidatingAdmissionPolicyBindings().Informer().HasSyncedChecker(),
		shared.Core().V1().Namespaces().Informer().HasSyncedChecker(),
	}
	return &Policies{mutating, validating, synced, sets.New(excluded...), c, make(chan struct{})}, nil
}

// Register makes the plugins of k8s.io/apiserver available to a server, as server.RegisterAllAdmissionPlugins does, with these for
// policies.
func (p *Policies) Register(plugins *admission.Plugins) {
	lifecycle.Register(plugins)
	mutatingwebhook.Register(plugins)
	validatingwebhook.Register(plugins)
	plugins.Register(mutatingpolicy.PluginName, func(io.Reader) (admission.Interface, error) {
		return mutatingPolicies{p.mutating, p}, nil
	})
	plugins.Register(validatingpolicy.PluginName, func(io.Reader) (admission.Interface, error) {
		return validatingPolicies{p.validating, p}, nil
	})
}

// Start starts the plugins once their informers have synced, which must be running, or returns the error of ctx.
func (p *Policies) Start(ctx context.Context) error {
	if !cache.WaitFor(ctx, "", p.synced...) {
		return ctx.Err()
	}
	if err := errors.Join(p.mutating.ValidateInitialization(), p.validating.ValidateInitialization()); err != nil {
		return err
	}
	close(p.started)
	return nil
}

// await waits until the plugins have started, if they apply to a resource.
func (p *Policies) await(ctx context.Context, a admission.Attributes) error {
	select {
	case <-p.started:
		return nil
	default:
	}
	if p.excluded.Has(a.GetResource().GroupResource()) {
		return nil
	}
	timer := p.clock.NewTimer(policiesLimit)
	defer timer.Stop()
	select {
	case <-p.started:
		return nil
	case <-timer.C():
	case <-ctx.Done():
	}
	return admission.NewForbidden(a, errPoliciesNotReady)
}

// mutatingPolicies and validatingPolicies are initialized with the other plugins, and started by Policies.Start.
type (
	mutatingPolicies struct {
		*mutatingpolicy.Plugin
		all *Policies
	}
	validatingPolicies struct {
		*validatingpolicy.Plugin
		all *Policies
	}
)

// ValidateInitialization does nothing: it would start the plugin.
func (mutatingPolicies) ValidateInitialization() error { return nil }

// ValidateInitialization does nothing: it would start the plugin.
func (validatingPolicies) ValidateInitialization() error { return nil }

// Admit implements admission.MutationInterface.
func (m mutatingPolicies) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := m.all.await(ctx, a); err != nil {
		return err
	}
	return m.Plugin.Admit(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (v validatingPolicies) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := v.all.await(ctx, a); err != nil {
		return err
	}
	return v.Plugin.Validate(ctx, a, o)
}
