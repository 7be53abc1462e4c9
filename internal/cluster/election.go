// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/apiserver"
	"github.com/kindred-project/kindred/internal/part"
	"github.com/kindred-project/kindred/internal/servers"
	"github.com/kindred-project/kindred/internal/storage"
)

// A server that is lost is followed within leaseDuration, a retry and the start of the parts: less than 5 s. The leader gives up
// before its lease ends. What it still writes after that fails: see storage.Fence.
const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 300 * time.Millisecond
)

// candidate is this server in the elections of the one that leads. There is one lock for all parts, because they share caches.
type candidate struct {
	*Cluster
	name   string
	client kubernetes.Interface
	// terms makes a term wait for the end of the one before. It guards failure, why the last one could not begin.
	terms   sync.Mutex
	failure error
	// decided is closed when this server leads, or another is known to.
	decided chan struct{}
	decide  func()
}

// startTerms starts the term of the only server. A server that shares its store takes part in elections instead; startTerms
// returns when its term has begun or another server leads.
func (c *Cluster) startTerms(ctx context.Context, steps *steps) error {
	if !c.backend.Shared() {
		return c.newTerm(c.parts, nil).start(ctx, steps)
	}
	candidate, err := c.newCandidate()
	if err != nil {
		return err
	}
	c.announce(candidate)
	c.parts.Start("election", func(ctx context.Context) error { return candidate.run(ctx, steps) })
	return part.Await(ctx, candidate.decided)
}

// announce tells the other servers of this one, and of its traffic.
func (c *Cluster) announce(as *candidate) {
	self := servers.Server{Name: as.name, Version: c.config.Version, URL: c.Server()}
	if reached := c.serving.forPods(); reached.IsValid() {
		self.URL = "https://" + reached.String()
	}
	c.parts.Start("announcement", func(ctx context.Context) error { return servers.Announce(ctx, as.client, self, c.config.Clock) })
	// The leader's collector knows the traffic of its own server.
	busy := func() bool { return c.term.Load() == nil && c.server.Busy() }
	c.parts.Start("traffic", func(ctx context.Context) error { return c.backend.ShareTraffic(ctx, as.name, busy, c.config.Clock) })
}

func (c *Cluster) newCandidate() (*candidate, error) {
	name, err := c.config.Dir.ServerName()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(configFor(c.server, serverUser))
	if err != nil {
		return nil, err
	}
	decided := make(chan struct{})
	return &candidate{Cluster: c, name: name, client: client, decided: decided, decide: sync.OnceFunc(func() { close(decided) })}, nil
}

// run takes part in elections until ctx is done. It returns an error if the first term cannot begin; later ones are tried again.
func (c *candidate) run(ctx context.Context, steps *steps) error {
	for {
		if err := c.stand(ctx, steps); err != nil {
			return err
		}
		steps = newSteps(Config{Clock: c.config.Clock}) // only the first term is a part of the start
		select {
		case <-ctx.Done():
			return nil
		case <-c.config.Clock.After(retryPeriod): // gives other servers the chance
		}
	}
}

// stand takes part in elections until this server has led and does not any more, or ctx is done.
func (c *candidate) stand(ctx context.Context, steps *steps) error {
	ctx, stepDown := context.WithCancel(ctx)
	defer stepDown()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          servers.LeaderLease,
		Lock:          newLock(c.client, c.name),
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		// The fence makes it safe to release the lease before the parts have stopped.
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer stepDown()
				c.lead(ctx, steps)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != "" && leader != c.name {
					c.follow(leader)
					c.endTerm()
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(ctx)
	c.terms.Lock() // until the term has ended
	defer c.terms.Unlock()
	select {
	case <-c.decided:
		return nil
	default:
		return c.failure
	}
}

// follow notes that another server leads.
func (c *candidate) follow(leader string) {
	klog.InfoS("Another server leads", "server", leader)
	select {
	case <-c.decided:
	default:
		c.config.notice(fmt.Sprintf("%s leads: it runs the controllers, the scheduler and the garbage collector; this server, %s, takes over if that one stops", leader, c.name))
	}
	c.checks.pass("controllers")
	c.checks.pass("scheduler")
	c.decide()
}

// endTerm ends the term of this server, if it leads: another one has held the lease meanwhile.
func (c *candidate) endTerm() {
	if t := c.term.Load(); t != nil {
		t.end()
	}
}

// lead begins a term and returns when ctx is done or the fence is lost, and the term has ended; or when it cannot begin.
func (c *candidate) lead(ctx context.Context, steps *steps) {
	c.terms.Lock()
	defer c.terms.Unlock()
	ctx, end := context.WithCancel(ctx)
	defer end()
	running := part.NewGroup(c.fail)
	defer func() {
		c.term.Store(nil)
		c.reviews.Disconnect()
		running.Stop(clock.RealClock{}, partsLimit)
	}()
	err := c.begin(ctx, end, running, steps)
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "This server cannot lead")
		c.failure = err
		return
	}
	klog.InfoS("This server leads", "server", c.name)
	c.decide()
	<-ctx.Done()
	klog.InfoS("This server does not lead any more", "server", c.name)
}

// begin begins a term, which calls end if it is to end.
func (c *candidate) begin(ctx context.Context, end func(), running *part.Group, steps *steps) error {
	fence, err := c.backend.NewFence(ctx, c.name, end)
	if err != nil {
		return err
	}
	t := c.newTerm(running, fence)
	t.end, t.traffic = end, storage.NewTraffic(c.config.Clock)
	running.Start("traffic of other servers", func(ctx context.Context) error { return t.traffic.Run(ctx, c.backend) })
	return t.start(ctx, steps)
}

// leadership returns what the API must know about other servers; nil if there can be none.
func (c *Cluster) leadership() (apiserver.Leadership, error) {
	if !c.backend.Shared() {
		return nil, nil
	}
	name, err := c.config.Dir.ServerName()
	return leadership{c, name}, err
}

type leadership struct {
	*Cluster
	name string
}

// Name implements apiserver.Leadership.
func (l leadership) Name() string { return l.name }

// Leads implements apiserver.Leadership.
func (l leadership) Leads() bool { return l.term.Load() != nil }

// Leader implements apiserver.Leadership.
func (l leadership) Leader(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(configFor(l.server, serverUser))
	if err != nil {
		return "", err
	}
	leader, err := servers.Leader(ctx, client)
	return leader.URL, err
}
