// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

// field is a field that is accepted and has no effect.
type field struct {
	// reason is why, or what to use instead.
	reason string
	// asUpstream is upstream's default. Tools write it out, and nothing is lost then.
	asUpstream any
}

const (
	partOfCluster  = "the agent is a part of the cluster's process"
	notLimited     = "the agent does not limit its requests"
	ownCertificate = "the cluster issues and renews the certificate of the agent's server"
	notUsed        = "kubelets do not use it any more"
	useEndpoint    = "use --container-runtime-endpoint"
)

// withoutEffect has the fields of KubeletConfiguration without effect.
var withoutEffect = map[string]field{
	"cgroupsPerQOS": {"pods always have cgroups, below those of their QoS classes", true},
	"clusterDNS":    {"the cluster's DNS server is part of Kindred; see --no-dns", nil},
	"configMapAndSecretChangeDetectionStrategy": {"changes are always watched", "Watch"},
	"containerLogMaxWorkers":                    {"each log is rotated on its own", 1.0},
	"containerRuntimeEndpoint":                  {useEndpoint, "unix:///run/containerd/containerd.sock"},
	"contentType":                               {"the agent's client chooses its encoding", "application/vnd.kubernetes.protobuf"},
	"defaultPodSysctls":                         {"its feature gate is alpha", nil},
	"enableContentionProfiling":                 {"contention is not profiled", nil},
	"enableControllerAttachDetach":              {"the controller always attaches volumes", true},
	"eventBurst":                                {notLimited, 100.0},
	"eventRecordQPS":                            {notLimited, 50.0},
	"hairpinMode":                               {"the pod network decides it", "promiscuous-bridge"},
	"imageServiceEndpoint":                      {useEndpoint, nil},
	"iptablesDropBit":                           {notUsed, 15.0},
	"iptablesMasqueradeBit":                     {notUsed, 14.0},
	"kernelMemcgNotification":                   {"memory is measured periodically", nil},
	"kubeAPIBurst":                              {notLimited, 100.0},
	"kubeAPIQPS":                                {notLimited, 50.0},
	"kubeletCgroups":                            {partOfCluster, nil},
	"kubeReservedCgroup":                        {"enforceNodeAllocatable limits only pods", nil},
	"logging":                                   {partOfCluster, nil},
	"makeIPTablesUtilChains":                    {notUsed, true},
	"maxOpenFiles":                              {partOfCluster, 1000000.0},
	"podCIDR":                                   {"use --pod-cidr", nil},
	"qosReserved":                               {"its feature gate is alpha", nil},
	"registerNode":                              {"the agent always registers its Node", true},
	"rotateCertificates":                        {ownCertificate, true},
	"runOnce":                                   {"it is deprecated in kubelets", nil},
	"serverTLSBootstrap":                        {ownCertificate, nil},
	"showHiddenMetricsForVersion":               {"no hidden metrics are served", nil},
	"streamingConnectionIdleTimeout":            {"the container runtime decides it", "4h0m0s"},
	"syncFrequency":                             {"the agent acts when something changes", "1m0s"},
	"systemCgroups":                             {"processes outside of pods are not moved to another cgroup", nil},
	"systemReservedCgroup":                      {"enforceNodeAllocatable limits only pods", nil},
	"tlsCertFile":                               {ownCertificate, nil},
	"tlsPrivateKeyFile":                         {ownCertificate, nil},
	"tracing":                                   {"the agent writes no traces", nil},
	"volumePluginDir":                           {"FlexVolumes are not supported", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"},
}
