// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ingress serves Ingresses and the Gateway API with a reverse proxy in the process. It watches the API, compiles what it
// finds (package compile) to a table (package route), gives the table to the proxy (package proxy), and writes
// statuses and events. Endpoints are not in the table: the proxy looks them up for each request.
package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/ingress/compile"
	"github.com/kindred-project/kindred/internal/ingress/proxy"
	"github.com/kindred-project/kindred/internal/ingress/route"
)

// Options configure the part.
type Options struct {
	Client kubernetes.Interface
	// Dynamic is the client of the Gateway API; nil if that is not to be served.
	Dynamic dynamic.Interface
	// Definitions is the client of CRDs, of which those of the Gateway API are created.
	Definitions clientset.Interface
	// Pools are the ranges of addresses of load balancers. If there are some and Address is not given, each Gateway gets
	// an address of its own.
	Pools []netip.Prefix
	// Informers are of Ingresses, IngressClasses, Services, EndpointSlices, Nodes and Namespaces. New registers with
	// them; the caller starts them. Secrets of the type kubernetes.io/tls are watched apart.
	Informers informers.SharedInformerFactory
	Events    record.EventRecorder
	Clock     clock.WithTicker
	// Notice is called with each line that a user should read; nil drops them.
	Notice func(line string)
	// Address is the address to listen on; the zero Addr is all addresses of the machine.
	Address netip.Addr
	// Ports are those of Ingresses.
	Ports compile.Ports
	// Node is the node whose addresses are written to statuses if Address is not given: its ExternalIPs, or its
	// InternalIPs if it has none. Fallback is written if there is no such node.
	Node     string
	Fallback netip.Addr
}

// Ingress serves Ingresses.
type Ingress struct {
	options   Options
	proxy     *proxy.Server
	endpoints *endpoints
	gateways  *gateways
	secrets   cache.SharedIndexInformer
	certs     compile.Certificates
	wake      chan struct{}
	synced    []cache.DoneChecker
	// ready is closed when the ports have been opened once, or could not be.
	ready chan struct{}
	// reported has the problems that have an event, and failed the ports that a notice was given about.
	reported map[compile.Problem]bool
	failed   map[uint16]string
	// served has the keys of the Ingresses of which the status was written.
	served map[string]bool
}

// retryInterval is the time between two attempts to open ports and to write statuses that have failed.
const retryInterval = 5 * time.Second

// New returns the part. It listens on nothing before Run.
func New(o Options) (*Ingress, error) {
	i := &Ingress{options: o, wake: make(chan struct{}, 1), ready: make(chan struct{}), reported: map[compile.Problem]bool{}, failed: map[uint16]string{}, served: map[string]bool{}}
	if i.options.Notice == nil {
		i.options.Notice = func(string) {}
	}
	if err := i.register(); err != nil {
		return nil, err
	}
	var err error
	if i.gateways, err = newGateways(i); err != nil {
		return nil, err
	}
	i.proxy = proxy.New(proxy.Options{Address: o.Address, Endpoints: i.endpoints.of, Clock: o.Clock})
	return i, nil
}

// Ready returns a channel that is closed when the ports of Ingresses and Gateways have been opened once, or could not be.
func (i *Ingress) Ready() <-chan struct{} { return i.ready }

// Run serves until ctx is done.
func (i *Ingress) Run(ctx context.Context) error {
	go i.secrets.RunWithContext(ctx)
	if i.gateways != nil {
		go i.gateways.crds.RunWithContext(ctx)
	}
	if !cache.WaitFor(ctx, "", i.synced...) {
		return nil
	}
	defer i.proxy.Close()
	retry := i.options.Clock.NewTimer(retryInterval)
	defer retry.Stop()
	for first := true; ; first = false {
		err := errors.Join(i.ensureClass(ctx), i.update(ctx))
		if first {
			close(i.ready)
		}
		if err != nil && ctx.Err() == nil {
			klog.V(2).InfoS("Ingress is incomplete, will retry", "reason", err.Error())
			retry.Reset(retryInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-i.wake:
		case <-retry.C():
		}
	}
}

// update compiles all objects, serves the result, and reports on it.
func (i *Ingress) update(ctx context.Context) error {
	ingresses, _ := i.options.Informers.Networking().V1().Ingresses().Lister().List(labels.Everything()) // from the cache, which has no errors
	classes, _ := i.options.Informers.Networking().V1().IngressClasses().Lister().List(labels.Everything())
	ours := compile.Ours(ingresses, classes)
	listeners, problems := compile.Ingresses(ours, i.options.Ports, i.objects())
	served, incomplete := i.compileGateways(ctx)
	failed := i.proxy.Serve(ctx, route.New(append(listeners, served.Listeners...)))
	i.report(problems)
	return errors.Join(incomplete, i.noticePorts(failed), i.writeStatuses(ctx, ours), i.gatewayStatuses(ctx, served))
}

// compileGateways compiles the objects of the Gateway API, if it is served.
func (i *Ingress) compileGateways(ctx context.Context) (compile.Gateways, error) {
	if i.gateways == nil {
		return compile.Gateways{}, nil
	}
	return i.gateways.compile(ctx, i.failed)
}

// gatewayStatuses writes the statuses of the Gateway API. If a port has failed or can be opened again since they were
// compiled, the next update writes that.
func (i *Ingress) gatewayStatuses(ctx context.Context, served compile.Gateways) error {
	if i.gateways == nil {
		return nil
	}
	return i.gateways.writeGatewayStatuses(ctx, served)
}

// objects finds objects in the informers.
func (i *Ingress) objects() compile.Objects {
	services := i.options.Informers.Core().V1().Services().Lister()
	return compile.Objects{
		Service: func(namespace, name string) *v1.Service {
			svc, err := services.Services(namespace).Get(name)
			if err != nil {
				return nil
			}
			return svc
		},
		Secret: func(namespace, name string) *v1.Secret {
			o, ok, _ := i.secrets.GetIndexer().GetByKey(namespace + "/" + name) // the index has no errors
			if !ok {
				return nil
			}
			return o.(*v1.Secret)
		},
		Certificates: &i.certs,
	}
}

// report records an event for each problem that is new.
func (i *Ingress) report(problems []compile.Problem) {
	now := map[compile.Problem]bool{}
	for _, p := range problems {
		key := compile.Problem{UID: p.UID, Reason: p.Reason, Message: p.Message}
		if now[key] = true; !i.reported[key] {
			i.options.Events.Event(p.Object, v1.EventTypeWarning, p.Reason, p.Message)
		}
	}
	i.reported = now
}

// noticePorts tells the user which ports cannot be served, once for each.
func (i *Ingress) noticePorts(failed map[uint16]error) error {
	var all []error
	for port, err := range failed {
		all = append(all, err)
		if i.failed[port] == "" {
			i.options.Notice(fmt.Sprintf("Ingress does not serve port %d: %s", port, i.whyNot(port, err)))
			i.changed() // for the statuses of Gateways
		}
	}
	for port := range i.failed {
		if _, still := failed[port]; !still {
			i.options.Notice(fmt.Sprintf("Ingress serves port %d now", port))
			i.changed()
		}
	}
	i.failed = map[uint16]string{}
	for port, err := range failed {
		i.failed[port] = i.whyNot(port, err)
	}
	return errors.Join(all...)
}

// whyNot returns the reason why a port cannot be listened on, and what to do.
func (i *Ingress) whyNot(port uint16, err error) string {
	flag := map[uint16]string{i.options.Ports.HTTP: "--ingress-http-port", i.options.Ports.HTTPS: "--ingress-https-port"}[port]
	remedy := "free the port, or take another one"
	if flag != "" {
		remedy = "free it, or take another one with " + flag
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program uses it; " + remedy
	case errors.Is(err, syscall.EACCES):
		return "ports below 1024 need root; " + strings.TrimPrefix(remedy, "free it, or ")
	}
	return err.Error() + "; " + remedy
}
