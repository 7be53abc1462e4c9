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

// fairness lets requests wait for each other by priority (KEP-1040). The filter is
// the library's; the objects that it follows are kept up to date here.
type fairness struct {
	utilflowcontrol.Interface
	client  client.FlowcontrolV1Interface
	schemas listers.FlowSchemaLister
	levels  listers.PriorityLevelConfigurationLister
	clock   clock.WithTicker
}

func newFairness(c Config, client kubernetes.Interface, shared informers.SharedInformerFactory) *fairness {
	from := shared.Flowcontrol().V1()
	return &fairness{
		// All levels share the places that were there without levels.
		Interface: utilflowcontrol.New(shared, client.FlowcontrolV1(), maxInFlight),
		client:    client.FlowcontrolV1(),
		schemas:   from.FlowSchemas().Lister(),
		levels:    from.PriorityLevelConfigurations().Lister(),
		clock:     c.Clock,
	}
}

// Handle lets the administrators in at once. The mandatory schema "exempt" is the first
// to match them, and its level never waits (KEP-1040): to reckon such a request's seats
// and to keep a queue's books of it takes a twentieth of a create, and decides nothing.
func (f *fairness) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() request.WorkEstimate, queueNote fairqueuing.QueueNoteFn, execute func(),
) {
	schema, level := f.exempt(digest.User)
	if schema == nil || level == nil {
		f.Interface.Handle(ctx, digest, note, estimate, queueNote, execute)
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

// exempt gives the objects by which a caller is let in at once, or nil: for everybody
// else, and until they are known here.
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

// ensure makes what is missing, and puts right what is the server's. Before that,
// the filter works with the mandatory objects alone, which it knows.
func (f *fairness) ensure(ctx context.Context) error {
	return flowcontrol.Ensure(ctx, f.client, f.schemas, f.levels)
}

// fairnessPeriod is how often the objects are looked at again, as upstream.
const fairnessPeriod = time.Minute

// start looks after the objects for as long as the server runs.
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
			klog.FromContext(ctx).Error(err, "Cannot bring the objects of priority and fairness up to date; will try again")
		}
	}
}
