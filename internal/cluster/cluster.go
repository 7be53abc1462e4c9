// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/apiserver"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/ownership/review"
	"github.com/kindred-project/kindred/internal/part"
	"github.com/kindred-project/kindred/internal/storage"
)

// Cluster is a running cluster.
type Cluster struct {
	config  Config
	lock    *datadir.Lock
	keys    *pki.PKI
	backend *storage.Backend
	server  *apiserver.Server
	reviews review.Reviews
	serving serving
	machine *machine.Machine
	// term is that of this server; nil if another one leads.
	term atomic.Pointer[term]

	// parts are clients of the API: they stop before it.
	parts *part.Group
	// api is the API server.
	api *part.Group

	checks  *readiness
	failure chan error
	// abort ends a start that waits for a part that has failed.
	abort context.CancelCauseFunc
	stop  sync.Once
}

// Stopping takes at most stopLimit, of which the parts have partsLimit, in real time even under a
// fake clock. Whatever still runs then is abandoned, as by SIGKILL.
const (
	stopLimit  = 1500 * time.Millisecond
	partsLimit = time.Second
)

// Start starts a cluster and returns when it is ready. If ctx is done before, it stops the cluster
// and returns an error.
func Start(ctx context.Context, config Config) (_ *Cluster, err error) {
	config.decideNode()
	c := &Cluster{config: config, failure: make(chan error, 1)}
	c.parts, c.api = part.NewGroup(c.fail), part.NewGroup(c.fail)
	given := ctx
	ctx, c.abort = context.WithCancelCause(ctx)
	defer func() {
		if err == nil {
			return
		}
		if given.Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the failure, not the error of the step that waited
		}
		c.Stop()
	}()
	steps := newSteps(config)
	if c.lock, err = config.Dir.Lock(); err != nil {
		return nil, err
	}
	if member, err := join.ReadMembership(config.Dir.Membership()); err != nil || member.Server != "" {
		return nil, errors.Join(err, fmt.Errorf("this machine is a node of the cluster at %s with the data directory %s: start a cluster with another --data-dir, or leave that one with \"kindred leave\"", member.Server, config.Dir.Root))
	}
	// The container runtime takes longest and depends on no other step.
	c.machine = prepareMachine(ctx, config, steps)
	if err := c.openStore(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.startServer(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.startTerms(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.startNode(ctx); err != nil {
		return nil, err
	}
	if err := c.startIngress(ctx, steps); err != nil {
		return nil, err
	}
	if err := c.awaitReady(ctx); err != nil {
		return nil, err
	}
	steps.done("ready")
	c.backend.MarkStarted()
	return c, c.writeInstance()
}

// openStore opens the keys and etcd.
func (c *Cluster) openStore(ctx context.Context, steps *steps) (err error) {
	if err := receiveKeys(ctx, c.config); err != nil {
		return err
	}
	if c.keys, err = pki.Open(c.config.Dir.PKI(), c.config.Clock); err != nil {
		return err
	}
	steps.done("certificates")
	if c.backend, err = c.connectStore(ctx); err != nil {
		return err
	}
	c.watchStore()
	if c.backend.Shared() {
		if err := c.backend.Claim(ctx, join.HashOf(c.keys.Cluster.Certificate)); err != nil {
			return err
		}
	}
	steps.done("store")
	return nil
}

// connectStore connects to an external etcd, or starts the embedded one.
func (c *Cluster) connectStore(ctx context.Context) (*storage.Backend, error) {
	if len(c.config.Etcd.Servers) > 0 {
		return c.config.Etcd.Connect(ctx, c.config.Clock, c.config.History)
	}
	if err := checkStoreExists(c.config.Dir); err != nil {
		return nil, err
	}
	if !c.config.EtcdMember {
		return storage.Embedded(ctx, c.config.Dir.Etcd(), c.config.Clock, c.config.History)
	}
	member, err := c.etcdMember()
	if err != nil {
		return nil, err
	}
	return storage.EmbeddedMember(ctx, c.config.Dir.Etcd(), member, c.config.Clock, c.config.History)
}

// etcdMember returns what the embedded etcd is in its cluster. Its name is that of the server.
func (c *Cluster) etcdMember() (*storage.Member, error) {
	name, err := c.config.Dir.ServerName()
	if err != nil {
		return nil, err
	}
	authority, own, err := c.keys.EtcdMember(pki.Names{IPs: []net.IP{c.config.BindAddress, net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, err
	}
	said := ""
	return &storage.Member{
		Name: name, Address: c.config.BindAddress, Join: c.config.JoinEtcd,
		CA: authority.CertFile, Cert: own.Pair().CertFile, Key: own.Pair().KeyFile,
		Waiting: func(why string) {
			if why != said {
				c.config.notice("waiting: " + why)
				said = why
			}
		},
	}, nil
}

// AdmitServer gets this machine the keys of the cluster that it is to join as a server, so that Start needs no token later.
func AdmitServer(ctx context.Context, config Config) error {
	lock, err := config.Dir.Lock()
	if err != nil {
		return err
	}
	return errors.Join(receiveKeys(ctx, config), lock.Release())
}

// receiveKeys gets the cluster's keys from a directory or from another server, if it is to have them from there and has none yet.
func receiveKeys(ctx context.Context, config Config) error {
	if config.Join.Server == "" && config.Authorities == "" {
		return nil
	}
	known, err := pki.Exists(config.Dir.PKI())
	if known || err != nil {
		return err
	}
	if config.Authorities != "" {
		return adoptAuthorities(config)
	}
	ca, err := join.Discover(ctx, config.Join.Invitation, config.Clock)
	if err != nil {
		return err
	}
	files, err := join.Keys(ctx, config.Join, ca)
	if err != nil {
		return err
	}
	return pki.Adopt(config.Dir.PKI(), files)
}

// adoptAuthorities copies the cluster's keys from the directory that is given.
func adoptAuthorities(config Config) error {
	files, err := pki.Shared(config.Authorities)
	if err != nil {
		return fmt.Errorf("the authorities of the cluster: %w", err)
	}
	return pki.Adopt(config.Dir.PKI(), files)
}

// watchStore fails the cluster when the embedded store fails.
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

// startServer starts the API server and creates the objects that every cluster has.
func (c *Cluster) startServer(ctx context.Context, steps *steps) (err error) {
	if c.serving, err = listen(ctx, c.config, c.machine); err != nil {
		return err
	}
	c.checks = newReadiness("controllers", "scheduler", "node", "resources")
	leadership, err := c.leadership()
	if err != nil {
		return err
	}
	if err := c.runServer(ctx, apiserver.Config{
		Backend:          c.backend,
		PKI:              c.keys,
		Listener:         c.serving.listener,
		Names:            c.serving.names,
		AdvertiseAddress: c.serving.advertised,
		AdvertisePort:    c.serving.port,
		ServiceCIDRs:     c.config.ServiceCIDRs,
		ReserveDisk:      c.config.ReserveDisk,
		DataDir:          c.config.Dir.Root,
		Authentication:   c.config.Authentication,
		Authorization:    c.config.Authorization,
		Audit:            c.config.Audit,
		Encryption:       c.config.Encryption,
		RuntimeConfig:    c.config.RuntimeConfig,
		Ownership:        &c.reviews,
		Leadership:       leadership,
		SimulatedStats:   c.simulatedStats,
		ReadyChecks:      c.checks.checkers(),
		Flags:            c.config.Flags,
		Clock:            c.config.Clock,
	}); err != nil {
		return err
	}
	if err := c.server.EnsureSystem(ctx); err != nil {
		return fmt.Errorf("set up the cluster: %w", err)
	}
	steps.done("API")
	c.parts.Start("certificates", func(ctx context.Context) error { return renewCertificates(ctx, c.keys, c.config.Clock) })
	return c.writeAdminKubeconfig()
}

// runServer creates and runs the server, and returns once it is created. Creating it takes up to
// half a second and cannot be interrupted, so the part does that too: a stop can abandon it.
func (c *Cluster) runServer(ctx context.Context, config apiserver.Config) error {
	made := make(chan error, 1)
	c.api.Start("API server", func(ctx context.Context) (err error) {
		c.server, err = apiserver.New(config)
		if made <- err; err != nil {
			<-ctx.Done() // the start reports the error, not the part
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

// awaitReady waits until the server's own /readyz succeeds.
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

// fail reports the failure of a part, and aborts a start in progress.
func (c *Cluster) fail(err error) {
	select {
	case c.failure <- err:
	default:
	}
	c.abort(err)
}

// Failed returns a channel that gets at most one error: why the cluster cannot continue.
func (c *Cluster) Failed() <-chan error { return c.failure }

// RESTConfig returns an administrator's configuration for clients in this process. It needs no
// connection.
func (c *Cluster) RESTConfig() *rest.Config {
	config := c.server.Config(adminUser)
	config.UserAgent = "" // the caller's, not the server's
	return config
}

// Server returns the URL of the API.
func (c *Cluster) Server() string {
	return "https://" + net.JoinHostPort(c.serving.host, strconv.Itoa(c.serving.port))
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.config.Dir.Kubeconfig() }

// Stop stops the parts, then the API server, then the store, and waits for each. Containers keep
// running.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		began := clock.RealClock{}.Now()
		c.parts.Stop(clock.RealClock{}, partsLimit)
		// A server that is still stopping closes its listener itself. If it lost its listener
		// first, it would end the process (genericapiserver.RunServer).
		if c.api.Stop(clock.RealClock{}, stopLimit-clock.RealClock{}.Since(began)) {
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
