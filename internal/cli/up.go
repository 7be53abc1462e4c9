// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/systemd"
)

func newUp(version string) *cobra.Command {
	options := kindred.Options{Audit: kindred.NewAuditOptions()}
	var release string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a cluster in the foreground",
		Long: `Run a whole cluster in the foreground until it is interrupted.

Without flags this machine becomes its node: pods are containers on a private
containerd, which outlives the cluster, so that "kindred up" can be stopped and
started again without disturbing them. "kindred reset" removes everything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			options.DataDir, options.Version, options.Flags = layout.Root, version, flagValues(cmd)
			clusterAPI, err := openClusterAPI(cmd, release)
			if err != nil {
				return err
			}
			return up(cmd, options, layout, clusterAPI)
		},
	}
	inSections(cmd, upFlags(&options, &release))
	return cmd
}

// upFlags returns the flags of "kindred up", which set options and the directory of a release of Cluster API.
func upFlags(options *kindred.Options, release *string) *cliflag.NamedFlagSets {
	sections := &cliflag.NamedFlagSets{}
	addClusterFlags(sections.FlagSet("cluster"), options)
	sections.FlagSet("cluster").StringVar(release, "cluster-api", "", "directory with a release of Cluster API, as \"make capi-release\" writes it, that is installed in the cluster: its core, and Kindred's providers")
	addAuthenticationFlags(sections.FlagSet("authentication"), &options.Authentication)
	addAuthorizationFlags(sections.FlagSet("authorization"), &options.Authorization)
	addAuditFlags(sections.FlagSet("audit"), options.Audit)
	return sections
}

// addClusterFlags adds the flags of the cluster and its node.
func addClusterFlags(flags *pflag.FlagSet, options *kindred.Options) {
	flags.StringVar(&options.BindAddress, "bind-address", "", "IP address that the API server listens on (default "+kindred.DefaultBindAddress+", with --server or --join an address of this machine that others reach)")
	flags.BoolVar(&options.Server, "server", false, "let other machines use the API: nodes that join, and other servers")
	flags.IntVar(&options.SecurePort, "secure-port", 6443, "port of the API server; 0 picks a free one")
	flags.StringSliceVar(&options.EtcdServers, "etcd-servers", nil, "URLs of an external etcd to use instead of the embedded one")
	flags.StringVar(&options.EtcdCAFile, "etcd-cafile", "", "file of the CA that signed etcd's certificate")
	flags.StringVar(&options.EtcdCertFile, "etcd-certfile", "", "file of the client certificate for etcd")
	flags.StringVar(&options.EtcdKeyFile, "etcd-keyfile", "", "file of the client key for etcd")
	flags.BoolVar(&options.EtcdEmbedded, "etcd-embedded", false, "make the embedded etcd a member of an etcd cluster, with the members of other servers, on ports 2379 and 2380 of the bind address")
	flags.StringSliceVar(&options.JoinEtcd, "join-etcd", nil, "URLs of members of the etcd cluster that the embedded etcd joins")
	flags.StringVar(&options.Join, "join", "", "URL of a server of a cluster, of which this machine becomes a server too")
	flags.StringVar(&options.JoinToken, "token", "", "token that admits this machine as a server")
	flags.StringVar(&options.JoinCAHash, "ca-hash", "", "hash of the key of the cluster's authority")
	flags.StringVar(&options.JoinKey, "certificate-key", "", "key that decrypts the cluster's keys")
	flags.StringVar(&options.Authorities, "authorities", "", "directory with the keys of the cluster that the first start adopts: ca.crt, ca.key, front-proxy-ca.crt, front-proxy-ca.key, sa.key, and with --etcd-embedded etcd-ca.crt and etcd-ca.key (default new ones)")
	flags.StringSliceVar(&options.TLSSANs, "tls-san", nil, "further names and addresses in the certificate of the API, such as those of a load balancer")
	flags.StringVar(&options.EncryptionProviderConfig, "encryption-provider-config", "", "file with an EncryptionConfiguration: which resources are encrypted in etcd, and how")
	flags.BoolVar(&options.EncryptionProviderConfigAutomaticReload, "encryption-provider-config-automatic-reload", false, "reload the --encryption-provider-config file when it changes")
	addHistoryFlags(flags, options)
	flags.Var((*size)(&options.Memory), "memory", "memory that the process may use: near it, requests that take much memory are refused (default GOMEMLIMIT, or the limit of the cgroup)")
	addRuntimeConfig(flags, options)
	flags.StringVar(&options.ContainerRuntimeEndpoint, "container-runtime-endpoint", "", "CRI endpoint of a container runtime to use instead of a private containerd")
	flags.IntVar(&options.SimulatedNodes, "simulated-nodes", 0, "number of simulated nodes")
	flags.BoolVar(&options.NoNode, "no-node", false, "do not run a node agent on this machine")
	flags.StringVar(&options.NodeName, "node-name", "", "name of this machine's node (default the host name)")
	flags.StringVar(&options.NodeIP, "node-ip", "", "addresses at which other machines reach this machine's node: IPv4, and IPv6 after a comma (default --bind-address, if it is one address and not loopback)")
	flags.StringVar(&options.PodNetwork, "pod-network", kindred.PodNetworkAuto, "how packets for pods get to other machines: directly where they share a link and else through a VXLAN tunnel (auto), always through a tunnel (vxlan), or encrypted (wireguard), on all machines alike")
	flags.StringVar(&options.KubeletDir, "kubelet-dir", "", "where CSI drivers expect the kubelet's directory, usually /var/lib/kubelet: becomes a link to this node's directory")
	flags.StringVar(&options.KubeletConfig, "kubelet-config", "", "file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) for this machine's node")
	flags.StringVar(&options.KubeletConfigDir, "kubelet-config-dir", "", "directory with files *.conf that are merged over --kubelet-config in the order of their names")
	flags.StringVar(&options.ClusterCIDR, "cluster-cidr", "", "CIDRs from which each node gets a /24 for its pods, and a /64 of the IPv6 one after a comma (default 10.244.0.0/16,fd00:10:244::/48)")
	flags.StringVar(&options.PodCIDR, "pod-cidr", "", "CIDRs of this node's pods: IPv4, and IPv6 after a comma (default a free /24 of --cluster-cidr, and a free /64 if --service-cidr has an IPv6 range)")
	flags.BoolVar(&options.NoDNS, "no-dns", false, "do not serve the cluster's DNS, so that another DNS server can be installed")
	flags.StringVar(&options.DNSHosts, "dns-hosts", "", "file in the format of /etc/hosts with further names for the cluster's DNS")
	flags.BoolVar(&options.ClusterNetworkPolicies, "cluster-network-policies", false, "install the kind ClusterNetworkPolicy (policy.networking.k8s.io) unless it exists, and apply its policies")
	flags.BoolVar(&options.Ingress, "ingress", false, "serve Ingresses of the class kindred on this machine")
	flags.StringVar(&options.IngressAddress, "ingress-address", "", "IP address that Ingresses are served on (default all addresses)")
	flags.IntVar(&options.IngressHTTPPort, "ingress-http-port", kindred.DefaultIngressHTTPPort, "port that Ingresses are served on")
	flags.IntVar(&options.IngressHTTPSPort, "ingress-https-port", kindred.DefaultIngressHTTPSPort, "port that Ingresses are served on with TLS")
	flags.StringSliceVar(&options.LoadBalancerPools, "load-balancer-pool", nil, "CIDRs of addresses for Services of the type LoadBalancer, announced by ARP and NDP (default the address of the node)")
	options.TerminatedPodGCThreshold = kindred.DefaultTerminatedPodGCThreshold
	flags.Var((*podThreshold)(&options.TerminatedPodGCThreshold), "terminated-pod-gc-threshold", "how many pods that have ended are kept before the oldest are deleted; 0 keeps all")
	flags.StringVar(&options.ServiceCIDR, "service-cidr", kindred.DefaultServiceCIDR, "CIDRs of the ClusterIPs of Services: IPv4, and IPv6 after a comma for dual stack")
}

// addRuntimeConfig adds the flag that selects the built-in APIs.
func addRuntimeConfig(flags *pflag.FlagSet, options *kindred.Options) {
	options.RuntimeConfig = map[string]string{}
	flags.Var((*cliflag.ConfigurationMap)(&options.RuntimeConfig), "runtime-config", `which built-in APIs are served, as key=value pairs:
<group>/<version>=true|false, <group>/<version>/<resource>=true|false,
api/all, api/ga, api/beta and api/alpha=true|false for all versions of that stability`)
}

// addHistoryFlags adds the flags of history and deletion records.
func addHistoryFlags(flags *pflag.FlagSet, options *kindred.Options) {
	flags.DurationVar(&options.HistoryRetention, "history-retention", kindred.DefaultHistoryRetention, "how long past states of objects are kept; at least 5m")
	options.HistorySize = kindred.DefaultHistorySize
	flags.Var((*size)(&options.HistorySize), "history-size", "size of etcd's database above which past states are kept for a shorter time")
	flags.DurationVar(&options.DeletionRecords, "deletion-records", kindred.DefaultDeletionRecords, "how long records of deletions are kept")
}

// podThreshold is a number of pods. On the command line 0 means all, as upstream; in Options 0 is the
// default, and a negative number means all.
type podThreshold int

func (n *podThreshold) String() string { return strconv.Itoa(max(int(*n), 0)) }

func (n *podThreshold) Type() string { return "int" }

func (n *podThreshold) Set(text string) error {
	number, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("must be a number of pods")
	}
	if number <= 0 {
		number = -1
	}
	*n = podThreshold(number)
	return nil
}

// size is a number of bytes, as a quantity.
type size int64

func (s *size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }

func (s *size) Type() string { return "quantity" }

func (s *size) Set(text string) error {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return err
	}
	if quantity.Sign() <= 0 {
		return errors.New("must be greater than 0")
	}
	*s = size(quantity.Value())
	return nil
}

// inSections adds flags to a command, and prints its help in sections.
func inSections(cmd *cobra.Command, sections *cliflag.NamedFlagSets) {
	for _, flags := range sections.FlagSets {
		cmd.Flags().AddFlagSet(flags)
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		sections.FlagSet("global").AddFlagSet(cmd.InheritedFlags())
		printf(cmd, "%s\n\nUsage:\n  %s\n", cmd.Long, cmd.UseLine())
		cliflag.PrintSections(cmd.OutOrStdout(), *sections, 0)
	})
}

// up runs a cluster until a signal or a failure.
func up(cmd *cobra.Command, options kindred.Options, layout datadir.Layout, clusterAPI *clusterAPI) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	began := clock.RealClock{}.Now()
	notifier, err := systemd.TakeNotifier()
	if err != nil {
		return err
	}
	options.Progress = func(step string, took time.Duration) {
		printStep(cmd, step, took)
		notify(cmd, notifier, systemd.Status("starting: "+step))
	}
	options.Notice = func(line string) { printf(cmd, "%s\n", line) }
	closeLog, err := logTo(options.DataDir)
	if err != nil {
		return err
	}
	defer closeLog()
	if options.Memory == 0 {
		keepToCgroup()
	}
	stopPprof, err := servePprof()
	if err != nil {
		return err
	}
	defer stopPprof()
	cluster, err := kindred.Start(ctx, options)
	if err != nil {
		return upError(ctx, err)
	}
	printf(cmd, "ready in %d ms\n", clock.RealClock{}.Since(began).Milliseconds())
	printf(cmd, "export KUBECONFIG=%s\n", cluster.Kubeconfig())
	notify(cmd, notifier, systemd.Ready+"\n"+systemd.Status("API at "+cluster.Server()))
	go paceGC(ctx, clock.RealClock{})
	go clusterAPI.keep(ctx, cluster, layout)
	settled := clock.RealClock{}.After(settling)
	for {
		select {
		case <-settled:
			free()
			go keepFree(ctx, clock.RealClock{})
		case <-ctx.Done():
			notify(cmd, notifier, systemd.Stopping)
			cluster.Stop()
			return nil
		case err := <-cluster.Failed():
			cluster.Stop()
			return err
		}
	}
}

// notify notifies systemd, if it started this process. A failure does not stop a cluster that works.
func notify(cmd *cobra.Command, notifier systemd.Notifier, state string) {
	if err := notifier.Notify(state); err != nil {
		printf(cmd, "%v\n", err)
	}
}

// printStep prints a step of the start and the time that it took.
func printStep(cmd *cobra.Command, step string, took time.Duration) {
	printf(cmd, "  %-36s %5d ms\n", step, took.Milliseconds())
}

// upError distinguishes usage errors from failures, and hides the error of an interrupted start.
func upError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, kindred.ErrInvalid):
		return usageError{err}
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted before the cluster was ready")
	}
	return err
}
