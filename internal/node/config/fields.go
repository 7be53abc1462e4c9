// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

// withoutEffect has the fields of KubeletConfiguration that are accepted and have no effect, and the reason.
var withoutEffect = map[string]string{
	"address":                      "the agent listens on the node's address",
	"clusterDNS":                   "the cluster's DNS server is part of Kindred; see --no-dns",
	"containerRuntimeEndpoint":     "use --container-runtime-endpoint",
	"imageServiceEndpoint":         "use --container-runtime-endpoint",
	"contentType":                  "the agent's client chooses its encoding",
	"enableContentionProfiling":    "profiles are served as KINDRED_PPROF says",
	"eventBurst":                   "events are not limited by the agent",
	"eventRecordQPS":               "events are not limited by the agent",
	"hairpinMode":                  "the pod network decides it",
	"iptablesDropBit":              "kubelets stopped using it",
	"iptablesMasqueradeBit":        "kubelets stopped using it",
	"kernelMemcgNotification":      "memory is measured every ten seconds, and every second near a threshold",
	"kubeReservedCgroup":           "enforceNodeAllocatable limits only pods",
	"systemReservedCgroup":         "enforceNodeAllocatable limits only pods",
	"kubeAPIBurst":                 "the agent's client has no limit",
	"kubeAPIQPS":                   "the agent's client has no limit",
	"kubeletCgroups":               "the agent is part of the process of the cluster",
	"logging":                      "logs are written as by the other parts of the process",
	"makeIPTablesUtilChains":       "kubelets stopped using it",
	"maxOpenFiles":                 "the agent is part of the process of the cluster",
	"oomScoreAdj":                  "the agent is part of the process of the cluster, which keeps the score that it is started with",
	"podCIDR":                      "use --pod-cidr",
	"runOnce":                      "deprecated in kubelets",
	"serverTLSBootstrap":           "the certificate of the agent's server is issued and renewed by the cluster",
	"rotateCertificates":           "the agent's certificates are always renewed",
	"showHiddenMetricsForVersion":  "no hidden metrics are served",
	"systemCgroups":                "processes outside of pods are not moved to another cgroup",
	"tlsCertFile":                  "the certificate of the agent's server is issued and renewed by the cluster",
	"tlsPrivateKeyFile":            "the certificate of the agent's server is issued and renewed by the cluster",
	"tracing":                      "the agent writes no traces",
	"volumePluginDir":              "FlexVolumes are not supported",
	"enableControllerAttachDetach": "the controller always attaches volumes",
}
