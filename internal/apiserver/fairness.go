// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	listers "k8s.io/client-go/listers/flowcontrol/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/flowcontrol"
)

// fairness is API priority and fairness (KEP-1040): the filter of k8s.io/apiserver, and the default
// objects, which it maintains.
type fairness struct {
	utilflowcontrol.Interface
	client  client.FlowcontrolV1Interface
	schemas listers.FlowSchemaLister
	levels  listers.PriorityLevelConfigurationLister
	clock   clock.WithTicker
	turns   *turns
}

// urgent are the priority levels whose requests take no turn, as they have their own seats in upstream's API server: a lease that
// is renewed late makes a node unready or ends a controller.
var urgent = map[string]bool{"leader-election": true, "node-high": true, "system": true}

func newFairness(c Config, client kubernetes.Interface, shared informers.SharedInformerFactory) *fairness {
	from := shared.Flowcontrol().V1()
	return &fairness{
		// All priority levels share maxInFlight seats.
		Interface: utilflowcontrol.New(shared, client.FlowcontrolV1(), maxInFlight),
		client:    client.FlowcontrolV1(),
		schemas:   from.FlowSchemas().Lister(),
		levels:    from.PriorityLevelConfigurations().Lister(),
		clock:     c.Clock,
		turns:     newTurns(c.Clock),
	}
}

// Handle executes requests of administrators at once. The mandatory schema "exempt" is the first to
// match them, and its level never queues (KEP-1040): estimating seats and bookkeeping would take a
// twentieth of a create, without effect.
func (f *fairness) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() request.WorkEstimate, queueNote fairqueuing.QueueNoteFn, execute func(),
) {
	schema, level := f.exempt(digest.User)
	if schema == nil || level == nil {
		f.inTurn(ctx, digest, note, estimate, queueNote, execute)
		return
	}
	note(schema, level, "")
	metrics.AddDispatch(ctx, level.Name, schema.Name)
	started := f.clock.Now()
	defer func() {
		metrics.ObserveExecutionDuration(ctx, level.Name, schema.Name, f.clock.Since(started))
	}()
	execute()
}

// inTurn executes a request when it has a seat and its turn.
func (f *fairness) inTurn(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() request.WorkEstimate, queueNote fairqueuing.QueueNoteFn, execute func(),
) {
	var of string // the name of the priority level, which is noted before the execution
	noted := func(schema *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, flow string) {
		of = level.Name
		note(schema, level, flow)
	}
	f.Interface.Handle(ctx, digest, noted, estimate, queueNote, func() {
		if !urgent[of] {
			f.turns.await(ctx)
		}
		execute()
	})
}

// exempt returns the objects that exempt a caller; nil for other callers, and until the objects are
// cached.
func (f *fairness) exempt(caller user.Info) (*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration) {
	if !slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, nil
	}
	schema, err := f.schemas.Get(flowcontrolv1.FlowSchemaNameExempt)
	if err != nil {
		return nil, nil
	}
	level, err := f.levels.Get(flowcontrolv1.PriorityLevelConfigurationNameExempt)
	if err != nil {
		return nil, nil
	}
	return schema, level
}

// ensure creates missing objects and corrects those that the server owns. Before that, the filter
// works with its built-in copies of the mandatory objects.
func (f *fairness) ensure(ctx context.Context) error {
	return flowcontrol.Ensure(ctx, f.client, f.schemas, f.levels)
}

// fairnessPeriod is the interval at which the objects are checked, as upstream.
const fairnessPeriod = time.Minute

// start maintains the objects as long as the server runs.
func (f *fairness) start(main *genericapiserver.GenericAPIServer) error {
	return main.AddPostStartHook("priority-and-fairness-config-producer", func(hook genericapiserver.PostStartHookContext) error {
		go f.run(hook)
		return nil
	})
}

func (f *fairness) run(ctx context.Context) {
	ticker := f.clock.NewTicker(fairnessPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := f.ensure(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot update the objects of priority and fairness, will retry")
		}
	}
}
