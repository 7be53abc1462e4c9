// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs Cluster API's providers Kindred: infrastructure, bootstrap, control-plane, or several of them in one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
	"github.com/kindred-project/kindred/clusterapi/bootstrap"
	"github.com/kindred-project/kindred/clusterapi/controlplane"
	"github.com/kindred-project/kindred/clusterapi/hostclient"
	"github.com/kindred-project/kindred/clusterapi/infrastructure"
	"github.com/kindred-project/kindred/clusterapi/workload"
)

// options are the flags.
type options struct {
	providers                []string
	namespace                string
	leaderElect              bool
	healthAddress            string
	diagnosticsAddress       string
	program, version, hostAt string
	inContainer              bool
}

// providerNames are the values of --providers.
var providerNames = []string{"infrastructure", "bootstrap", "control-plane"}

func main() {
	ctrl.SetLogger(klog.Background())
	o, err := parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	flags.StringSliceVar(&o.providers, "providers", providerNames, "providers that run in this process: "+strings.Join(providerNames, ", "))
	flags.StringVar(&o.namespace, "namespace", "", "namespace of the objects that are reconciled; all by default")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "reconcile only while this process holds the Lease of the providers")
	flags.StringVar(&o.healthAddress, "health-addr", ":9440", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&o.diagnosticsAddress, "diagnostics-address", "0", "address of /metrics; 0 for none")
	flags.StringVar(&o.program, "kindred", "/kindred", "path of kindred, which makes tokens, and is installed on the host for machines")
	flags.StringVar(&o.version, "kindred-version", "", "version of Kubernetes that this kindred has, such as v1.37.1")
	flags.StringVar(&o.hostAt, "machines-dir", hostclient.DefaultRoot, "directory of the machines on the host")
	flags.BoolVar(&o.inContainer, "in-container", true, "machines are made outside of the container of which this is the first process")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for _, p := range o.providers {
		if !slices.Contains(providerNames, p) {
			return o, fmt.Errorf("provider %q: it is one of %s", p, strings.Join(providerNames, ", "))
		}
	}
	if o.runs("infrastructure") && o.version == "" {
		return o, errors.New("--kindred-version is needed: machines are made with the Kindred of their version")
	}
	return o, nil
}

func (o options) runs(provider string) bool { return slices.Contains(o.providers, provider) }

// newScheme has the kinds that the providers use.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		infrav1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme)
	return scheme, builder.AddToScheme(scheme)
}

func run(ctx context.Context, o options) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "kindred-cluster-api"
	config.QPS, config.Burst = 100, 200
	byNamespace := cache.Options{}
	if o.namespace != "" {
		byNamespace.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: byNamespace,
		// Secrets are read when they are needed: a cache would have those of all users. So are definitions.
		Client:         client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &apiextensionsv1.CustomResourceDefinition{}}}},
		Metrics:        metricsserver.Options{BindAddress: o.diagnosticsAddress},
		LeaderElection: o.leaderElect, LeaderElectionID: "kindred-" + strings.Join(o.providers, "-") + ".cluster.x-k8s.io", LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress: o.healthAddress,
		// Requests to a host, or to a cluster that does not answer, end when the process is asked to stop.
		GracefulShutdownTimeout: new(10 * time.Second),
	})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	if err := o.register(ctx, mgr, config); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// register adds the controllers.
func (o options) register(ctx context.Context, mgr ctrl.Manager, config *rest.Config) error {
	if o.runs("infrastructure") {
		if err := o.registerInfrastructure(ctx, mgr, config); err != nil {
			return err
		}
	}
	if o.runs("bootstrap") {
		machines := &workload.Machines{Management: mgr.GetClient(), Program: o.program}
		if err := (&bootstrap.Reconciler{Client: mgr.GetClient(), Workload: machines, Clock: clock.RealClock{}}).SetupWithManager(ctx, mgr); err != nil {
			return err
		}
	}
	if o.runs("control-plane") {
		return (&controlplane.Reconciler{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Workload: &workload.Servers{Management: mgr.GetClient()}, Clock: clock.RealClock{},
		}).SetupWithManager(ctx, mgr)
	}
	return nil
}

func (o options) registerInfrastructure(ctx context.Context, mgr ctrl.Manager, config *rest.Config) error {
	owner, err := ownerOf(config)
	if err != nil {
		return err
	}
	host := &hostclient.Host{Root: o.hostAt, Clock: clock.RealClock{}}
	if o.inContainer {
		if host.Namespaces, err = hostclient.RuntimeNamespaces(); err != nil {
			return err
		}
	}
	if err := host.Install(o.program, o.version); err != nil {
		return err
	}
	if err := (&infrastructure.ClusterReconciler{Client: mgr.GetClient(), Host: host, Owner: owner, Clock: clock.RealClock{}}).SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	return (&infrastructure.MachineReconciler{Client: mgr.GetClient(), Host: host, Owner: owner, Clock: clock.RealClock{}}).SetupWithManager(ctx, mgr)
}

// ownerOf identifies the management cluster on its host: by the hash of its authority's key, as "kindred join --ca-hash" has it. So
// "kindred reset" knows which machines are its own.
func ownerOf(config *rest.Config) (string, error) {
	ca := config.CAData
	if len(ca) == 0 {
		var err error
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return "", fmt.Errorf("the authority of the management cluster: %w", err)
		}
	}
	hash, err := workload.HashOf(ca)
	if err != nil {
		return "", fmt.Errorf("the authority of the management cluster: %w", err)
	}
	return hash, nil
}
