// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/apiserver"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/controllers"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/ownership/review"
	"github.com/kindred-project/kindred/internal/scheduler"
	"github.com/kindred-project/kindred/internal/storage"
)

// Cluster is a cluster that runs.
type Cluster struct {
	config  Config
	lock    *datadir.Lock
	keys    *pki.PKI
	backend *storage.Backend
	server  *apiserver.Server
	reviews review.Reviews
	caches  controllers.Caches
	serving serving
	machine *machine

	// parts run on the API and stop before it.
	parts group
	// api is the server itself.
	api group

	checks  readiness
	failure chan error
	// abort ends a start that waits for what can't come any more.
	abort context.CancelCauseFunc
	stop  sync.Once
}

// Stopping takes stopLimit at most, of which the parts have partsLimit, in real time even where a
// test moves the clock. What has not stopped by then is left behind, as it would be by SIGKILL.
const (
	stopLimit  = 1500 * time.Millisecond
	partsLimit = time.Second
)

// Start runs a cluster and returns once it is ready, or ctx is done.
func Start(ctx context.Context, config Config) (_ *Cluster, err error) {
	config.decideNode()
	c := &Cluster{config: config, failure: make(chan error, 1)}
	given := ctx
	ctx, c.abort = context.WithCancelCause(ctx)
	defer func() {
		if err == nil {
			return
		}
		if given.Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // what failed, rather than who waited for it
		}
		c.Stop()
	}()
	steps := newSteps(config)
	if c.lock, err = config.Dir.Lock(); err != nil {
		return nil, err
	}
	// A node's runtime takes longest and needs nothing of the rest.
	c.machine = startMachine(ctx, config)
	if err := c.openStore(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.startServer(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.startParts(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.startNodes(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.awaitReady(ctx); err != nil {
		return nil, err
	}
	steps.done("ready")
	c.backend.Started()
	return c, c.writeInstance()
}

// openStore opens keys and etcd.
func (c *Cluster) openStore(ctx context.Context, steps *steps) (err error) {
	if c.keys, err = pki.Open(c.config.Dir.PKI(), c.config.Clock); err != nil {
		return err
	}
	steps.done("certificates")
	if len(c.config.Etcd.Servers) > 0 {
		c.backend, err = c.config.Etcd.Connect(ctx, c.config.Clock, c.config.History)
	} else if err = storeThere(c.config.Dir); err == nil {
		c.backend, err = storage.Embedded(ctx, c.config.Dir.Etcd(), c.config.Clock, c.config.History)
	}
	if err != nil {
		return err
	}
	c.watchStore()
	steps.done("store")
	return nil
}

// watchStore ends the cluster when the embedded store cannot go on.
func (c *Cluster) watchStore() {
	failed := c.backend.Failed()
	if failed == nil {
		return
	}
	go func() {
		if err, ok := <-failed; ok {
			c.fail(err)
		}
	}()
}

// startServer brings the API up, with what every cluster has in it.
func (c *Cluster) startServer(ctx context.Context, steps *steps) (err error) {
	if c.serving, err = listen(ctx, c.config, c.machine); err != nil {
		return err
	}
	c.checks.add("controllers", "scheduler", "node", "resources")
	if err := c.runServer(ctx, apiserver.Config{
		Backend:          c.backend,
		PKI:              c.keys,
		Listener:         c.serving.listener,
		Names:            c.serving.names,
		AdvertiseAddress: c.serving.advertised,
		AdvertisePort:    c.serving.port,
		ServiceCIDR:      c.config.ServiceCIDR,
		ReserveDisk:      c.config.ReserveDisk,
		DataDir:          c.config.Dir.Root,
		Authentication:   c.config.Authentication,
		Authorization:    c.config.Authorization,
		Audit:            c.config.Audit,
		Encryption:       c.config.Encryption,
		RuntimeConfig:    c.config.RuntimeConfig,
		Ownership:        &c.reviews,
		ReadyChecks:      append(c.checks.checkers(), c.storeCheck()),
		Clock:            c.config.Clock,
	}); err != nil {
		return err
	}
	if err := c.server.EnsureSystem(ctx); err != nil {
		return fmt.Errorf("set up the cluster: %w", err)
	}
	steps.done("API")
	c.parts.start("certificates", c.fail, c.renewCertificates)
	return c.giveAccess()
}

// runServer makes the server, has it run, and returns once it is made. Making it takes up to half a
// second of work that cannot be interrupted: the part does that too, as a stop leaves behind what
// takes too long.
func (c *Cluster) runServer(ctx context.Context, config apiserver.Config) error {
	made := make(chan error, 1)
	c.api.start("API server", c.fail, func(ctx context.Context) (err error) {
		c.server, err = apiserver.New(config)
		if made <- err; err != nil {
			<-ctx.Done() // It is the start that fails.
			return nil
		}
		return c.server.Run(ctx)
	})
	select {
	case err := <-made:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Cluster) storeCheck() healthz.HealthChecker {
	return healthz.NamedCheck("etcd", func(req *http.Request) error { return c.backend.Check(req.Context()) })
}

// startParts starts what works on the API: controllers, collector, scheduler.
func (c *Cluster) startParts(ctx context.Context, steps *steps) error {
	manager, err := newManager(c.server, &c.caches)
	if err != nil {
		return err
	}
	if err := c.addControllers(manager); err != nil {
		return err
	}
	collector, err := c.newCollector()
	if err != nil {
		return err
	}
	if err := c.answerReviews(collector); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(configFor(c.server, schedulerUser))
	if err != nil {
		return err
	}
	schedule, err := scheduler.New(scheduler.Options{Client: client, Informers: c.server.Informers(), Clock: c.config.Clock})
	if err != nil {
		return err
	}
	c.server.StartInformers()
	c.parts.start("controllers", c.fail, manager.Start)
	c.parts.start("garbage collector", c.fail, collector.Run)
	c.parts.start("scheduler", c.fail, schedule.Run)
	if !manager.GetCache().WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	if err := await(ctx, collector.Synced()); err != nil {
		return err
	}
	c.checks.pass("controllers")
	if err := await(ctx, schedule.Ready()); err != nil {
		return err
	}
	c.checks.pass("scheduler")
	steps.done("controllers and scheduler")
	return nil
}

// awaitReady asks the server itself: what /readyz says is what ready means.
func (c *Cluster) awaitReady(ctx context.Context) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	go func() {
		switch err := c.server.AwaitServed(ctx); {
		case err == nil:
			c.checks.pass("resources")
		case ctx.Err() == nil:
			c.fail(fmt.Errorf("wait until all resources are served: %w", err))
		}
	}()
	client, err := kubernetes.NewForConfig(configFor(c.server, controllerUser))
	if err != nil {
		return err
	}
	ticker := c.config.Clock.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C():
		case failure := <-c.failure:
			return failure
		case <-ctx.Done():
			return fmt.Errorf("the cluster did not become ready: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// fail reports that a part ended by itself, and ends a start that is under way.
func (c *Cluster) fail(err error) {
	select {
	case c.failure <- err:
	default:
	}
	c.abort(err)
}

// Failed tells, at most once, why the cluster cannot go on.
func (c *Cluster) Failed() <-chan error { return c.failure }

// RESTConfig is an administrator's configuration, for clients in this process:
// it needs no connection.
func (c *Cluster) RESTConfig() *rest.Config {
	config := c.server.Config(adminUser)
	config.UserAgent = "" // its user's, not the server's
	return config
}

// Server is the URL of the API.
func (c *Cluster) Server() string {
	return "https://" + net.JoinHostPort(c.serving.host, strconv.Itoa(c.serving.port))
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.config.Dir.Kubeconfig() }

// Stop ends the cluster: first what works on the API, then the API, then the
// store. Containers run on. It returns when everything has stopped.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		began := clock.RealClock{}.Now()
		c.parts.stop(clock.RealClock{}, partsLimit)
		// A server that still stops closes its listener itself: to lose it before would end
		// the whole process (genericapiserver.RunServer).
		if c.api.stop(clock.RealClock{}, stopLimit-clock.RealClock{}.Since(began)) {
			c.serving.close()
		}
		if c.backend != nil {
			c.backend.Close()
		}
		if c.lock != nil {
			_ = c.lock.Release()
		}
		c.abort(context.Canceled)
	})
}

// await waits for a channel to be closed.
func await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
