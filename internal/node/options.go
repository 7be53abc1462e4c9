// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/image"
	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/static"
)

// Options are the identity of the node and what its agent depends on.
type Options struct {
	// Name is the node's name, and the value of its host name label.
	Name string
	// Client authenticates as system:node:<Name>. If it is nil, the node runs static pods only, and without an API.
	Client kubernetes.Interface
	// Decode decodes the manifests of static pods. It is required if the configuration has any.
	Decode static.Decode
	// ShowStatic takes the static pods and their statuses, on a node without an API; nil if nothing wants them.
	ShowStatic static.Mirrors
	// Endpoint is the CRI endpoint of the runtime and its images, as in unix:///run/containerd/containerd.sock.
	Endpoint string
	// DeleteTask deletes what the runtime has of a container below CRI, with its processes; nil if there is no such thing.
	DeleteTask func(ctx context.Context, container string) error
	// RootDir has the volumes and files of pods, except their logs. Its file system must allow mounts.
	RootDir string
	// LoopFiles is the directory of the files that block volumes of the local-path class consist of;
	// they are attached as loop devices. If empty, none is.
	LoopFiles string
	// Owner is a label of the node's sandboxes and containers in the runtime. It must be unique
	// among the users of the runtime.
	Owner string
	// CgroupParent is the parent of all pods' cgroups, an absolute path, unless Config has a root of them. If both are
	// empty, the runtime chooses cgroups.
	CgroupParent string
	// IPs are the node's addresses, one for each IP family, the preferred one first.
	IPs []string
	// ExternalIPs returns the node's addresses for clients outside of the cluster, for each status; nil if it has
	// none. Those of IPs are left out.
	ExternalIPs func() []string
	// ServePort is the port of the node's HTTP server in the Node object; 0 for none.
	ServePort int32
	// ServerCertificate returns when the certificate of that server expires; nil if it is unknown.
	ServerCertificate func() time.Time
	// API is where pods of this node reach the API server, if not by its Service.
	API netip.AddrPort
	// ClusterDNS are the cluster's DNS servers.
	ClusterDNS []string
	// ResolvConf is the node's resolver configuration. Defaults to /etc/resolv.conf.
	ResolvConf string
	// PodCIDRs are the node's pod ranges, which a new Node object gets.
	PodCIDRs []string
	// AwaitPod returns when the NetworkPolicies and host ports of a pod are in force for one of its addresses, which the API has.
	// Containers are started after that. If it is nil, or the pod is in the node's network, they start at once.
	AwaitPod func(ctx context.Context, pod *v1.Pod, address netip.Addr) error
	// LimitBandwidth limits what the pod of a sandbox receives and sends, in bits per second; 0 is no limit. If it is nil,
	// the container runtime decides what the annotations of a pod mean.
	LimitBandwidth func(sandbox string, ingress, egress int64) error
	// AnnouncePod makes the node and its pods forget the hardware address of a former pod with an address of this sandbox.
	// It is nil if the pod network is not Kindred's.
	AnnouncePod func(sandbox string) error
	// PinnedImages returns the names of images that are never removed, in addition to those that CRI reports as pinned.
	// Nil: there are none.
	PinnedImages func(ctx context.Context) ([]string, error)
	// Labels are set on the Node object at each start of the agent, Taints only when it is created.
	Labels map[string]string
	Taints []v1.Taint
	// Annotations are set on the Node object at each start of the agent.
	Annotations map[string]string
	// Config is the agent's configuration. Defaults to [config.Default].
	Config *config.Configuration
	// Version is reported as kubeletVersion. Defaults to the binary's.
	Version string
	// Kernel has the kernel's parameters, which the agent sets as the kubelet, or checks with protectKernelDefaults. If it is nil,
	// they are left alone.
	Kernel sysctl.Interface
	// Clock defaults to the real clock.
	Clock clock.WithTicker
	// Requests counts the requests of Client, if set.
	Requests *metrics.Requests
	// Recorder records events. Defaults to one that writes them through Client, or to the log.
	Recorder record.EventRecorder
	// Notice is called with each line that people who run the node should read; nil if nothing shows them.
	Notice func(line string)

	alone        bool // there is no API
	verification image.Verification
}

// kubepods is the cgroup of pods below a root that the configuration names, as the kubelet calls it.
const kubepods = "kubepods"

// layout names the files of pods.
func (o Options) layout() rootdir.Layout {
	return rootdir.Layout{Root: o.RootDir, Logs: o.Config.PodLogsDir, Links: rootdir.ContainerLogsDir}
}

// quota returns how CPU limits are enforced.
func (o Options) quota() criconfig.Quota {
	return criconfig.Quota{Off: !*o.Config.CPUCFSQuota, Period: o.Config.CPUCFSQuotaPeriod.Duration}
}

// pullLimits returns the limits of image pulls.
func (o Options) pullLimits() image.Limits {
	limits := image.Limits{PerSecond: float32(*o.Config.RegistryPullQPS), Burst: int(o.Config.RegistryBurst)}
	switch {
	case *o.Config.SerializeImagePulls:
		limits.Parallel = 1
	case o.Config.MaxParallelImagePulls != nil:
		limits.Parallel = int64(*o.Config.MaxParallelImagePulls)
	}
	return limits
}

// maxRestartDelay returns the maximum of the back-off of restarts; 0 for the default.
func (o Options) maxRestartDelay() time.Duration {
	if period := o.Config.CrashLoopBackOff.MaxContainerRestartPeriod; period != nil {
		return period.Duration
	}
	return 0
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Name == "":
		return o, errors.New("the node needs a name")
	case o.Endpoint == "":
		return o, errors.New("the node needs the endpoint of a container runtime")
	case o.RootDir == "":
		return o, errors.New("the node needs a root directory")
	case o.Owner == "":
		return o, errors.New("the node needs an owner label")
	case len(o.IPs) == 0:
		return o, errors.New("the node needs an IP address")
	}
	if o.alone = o.Client == nil; o.alone {
		o.Client = noAPI()
	}
	if o.ResolvConf == "" {
		o.ResolvConf = "/etc/resolv.conf"
	}
	if o.Config == nil {
		o.Config = config.Default()
	}
	if o.Config.CgroupRoot != "" {
		o.CgroupParent = filepath.Join(o.Config.CgroupRoot, kubepods)
	}
	if o.Decode == nil && o.Config.StaticPodPath+o.Config.StaticPodURL != "" {
		return o, errors.New("the node has static pods and cannot decode them")
	}
	if o.Version == "" {
		o.Version = version.Get().GitVersion
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	var err error
	o.verification, err = image.NewVerification(o.Config.ImagePullCredentialsVerificationPolicy, o.Config.PreloadedImagesVerificationAllowlist)
	return o, err
}

// The periods and limits of the agent.
const (
	// relistPeriod is the interval at which the pods of the runtime are compared with what workers last saw, in
	// case an event was missed.
	relistPeriod = 15 * time.Second
	relistJitter = 0.5
	// unreadyCheck is how often the Node's status is computed until the node is ready.
	unreadyCheck = 100 * time.Millisecond
	// leaseRenewals is how often the lease is renewed while it lasts, as by the kubelet.
	leaseRenewals = 4
	// registerRetry is the pause before the Node is registered again.
	registerRetry = 200 * time.Millisecond
	connectLimit  = 10 * time.Second
	// leaveLimit is the time that an agent that stops waits for actions that must finish.
	leaveLimit = 1500 * time.Millisecond
)
