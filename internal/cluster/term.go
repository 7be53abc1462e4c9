// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/apiserver"
	"github.com/kindred-project/kindred/internal/controllers"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/node/simulated"
	"github.com/kindred-project/kindred/internal/part"
	"github.com/kindred-project/kindred/internal/scheduler"
	"github.com/kindred-project/kindred/internal/storage"
)

// term is the time during which this server runs what one server at a time runs: the controllers, the garbage collector, the
// scheduler and the simulated nodes. Without other servers it is as long as the cluster runs.
type term struct {
	*Cluster
	// api is the API for the parts: what they write is under the fence of the term.
	api   apiserver.Client
	seats *seats
	// traffic is that of other servers; nil if there are none.
	traffic *storage.Traffic
	// end ends the term, if there are other servers.
	end func()
	// running are the parts of the term.
	running *part.Group
	caches  controllers.Caches
	// controllerStarts counts the controllers that have not started yet.
	controllerStarts control.Starts
	// simulated is nil until the simulated nodes are started.
	simulated atomic.Pointer[simulated.Nodes]
}

// newTerm returns a term whose writes are under a fence, unless that is nil.
func (c *Cluster) newTerm(running *part.Group, fence *storage.Fence) *term {
	// Processors are busy in real time, whatever the clock of the cluster says.
	return &term{Cluster: c, api: c.server.Client(fence), seats: newSeats(clock.RealClock{}), running: running}
}

func (t *term) directAs(as part.Identity) direct { return direct{t.api, t.seats, as} }

// start starts the parts of the term, and waits until they are ready.
func (t *term) start(ctx context.Context, steps *steps) error {
	t.term.Store(t)
	manager, err := t.newManager()
	if err != nil {
		return err
	}
	if err := t.addControllers(manager); err != nil {
		return err
	}
	collector, err := t.newCollector()
	if err != nil {
		return err
	}
	schedule, err := t.newScheduler()
	if err != nil {
		return err
	}
	t.server.StartInformers()
	// If informers are not synced when the manager starts, it waits for the next check, 100 ms later.
	if err := t.server.AwaitInformers(ctx); err != nil {
		return err
	}
	t.running.Start("controllers", manager.Start)
	t.running.Start("garbage collector", collector.Run)
	t.running.Start("scheduler", schedule.Run)
	if t.config.DNS {
		t.running.Start("DNS of nodes", t.publishDNS)
	}
	if !manager.GetCache().WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	if err := part.Await(ctx, collector.Synced()); err != nil {
		return err
	}
	if err := t.connectReviews(collector); err != nil {
		return err
	}
	t.checks.pass("controllers")
	if err := part.Await(ctx, schedule.Ready()); err != nil {
		return err
	}
	t.checks.pass("scheduler")
	steps.done("controllers and scheduler")
	return t.startSimulated(ctx, steps)
}

// publishDNS publishes the DNS servers of machines that have joined.
func (t *term) publishDNS(ctx context.Context) error {
	configFor := func(as part.Identity) *rest.Config { return configFor(t.api, as) }
	return machine.PublishDNS(ctx, configFor, t.server.Informers(), t.config.ServiceCIDRs[0], t.config.Clock)
}

func (t *term) newScheduler() (*scheduler.Scheduler, error) {
	client, err := kubernetes.NewForConfig(configFor(t.api, schedulerUser))
	if err != nil {
		return nil, err
	}
	writer := t.directAs(schedulerUser)
	return scheduler.New(scheduler.Options{
		Client: client, Bind: writer.bind, Events: newEventCreator(client, writer), Informers: t.server.Informers(),
		Gangs: t.server.ServesGangs(), Clock: t.config.Clock,
	})
}

// startSimulated starts the simulated nodes, if there are any, and waits until all are registered and Ready.
func (t *term) startSimulated(ctx context.Context, steps *steps) error {
	client, err := kubernetes.NewForConfig(configFor(t.api, simulatorUser))
	if err != nil {
		return err
	}
	count, taint, err := t.simulatedNodes(ctx, client)
	if err != nil || count == 0 {
		return err
	}
	direct := t.directAs(simulatorUser)
	nodes, err := simulated.New(simulated.Options{
		Client: client, UpdateStatus: direct.updatePodStatus, UpdateLease: direct.updateLease, Informers: t.server.Informers(),
		Count: count, Clock: t.config.Clock, Version: part.KubernetesVersion(), Taint: taint,
	})
	if err != nil {
		return err
	}
	t.server.StartInformers()
	t.simulated.Store(nodes)
	t.running.Start("simulated nodes", nodes.Run)
	if err := part.Await(ctx, nodes.Registered()); err != nil {
		return err
	}
	steps.done(fmt.Sprintf("%d simulated nodes", count))
	return nil
}

// simulatedNodes returns the number of nodes to simulate, and whether pods must not be scheduled to one by accident, because there
// are real nodes. A server that takes over has at least as many as the one before.
func (t *term) simulatedNodes(ctx context.Context, client kubernetes.Interface) (count int, taint bool, err error) {
	count, taint = t.config.SimulatedNodes, t.config.Node
	if !t.backend.Shared() {
		return count, taint, nil
	}
	left, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simulated.Key, ResourceVersion: "0"})
	if err != nil {
		return 0, false, err
	}
	for _, node := range left.Items {
		taint = taint || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == simulated.Key })
	}
	return max(count, len(left.Items)), taint, nil
}
