// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
)

const (
	// authoritiesDir has the keys of the cluster on a server until it has started for the first time.
	authoritiesDir = "/etc/kindred/authorities"
	// kubeletConfigDir has the configuration of the node's agent. The infrastructure provider adds the provider ID.
	kubeletConfigDir = "/etc/kindred/kubelet.conf.d"
)

// data are the bootstrap data of a machine: the arguments of Kindred, and its files.
type data struct {
	Args  []string `json:"args"`
	Files []file   `json:"files,omitempty"`
	// token is that of a node, in Args as well.
	token string
}

// file is a file of a machine.
type file struct {
	Path    string `json:"path"`
	Mode    uint32 `json:"mode,omitempty"`
	Content []byte `json:"content"`
}

// reserved are flags that the providers set.
var reserved = []string{
	"authorities", "bind-address", "ca-hash", "certificate-key", "cluster-cidr", "data-dir", "etcd-embedded", "etcd-servers", "join", "join-etcd",
	"kubelet-config", "kubelet-config-dir", "node-name", "secure-port", "server", "service-cidr", "tls-san", "token", "wait",
}

// flagsOf returns the further flags of a configuration, sorted.
func flagsOf(spec bootstrapv1.KindredConfigSpec) ([]string, error) {
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(spec.Flags)) {
		if slices.Contains(reserved, name) {
			return nil, waits{reason: bootstrapv1.InvalidReason, message: fmt.Sprintf("the flag %q is set by the provider and cannot be given", name)}
		}
		if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "= ") {
			return nil, waits{reason: bootstrapv1.InvalidReason, message: fmt.Sprintf("%q is not the name of a flag; write it without dashes and value", name)}
		}
		flags = append(flags, "--"+name+"="+spec.Flags[name])
	}
	return flags, nil
}

// filesOf returns the files of a configuration.
func filesOf(spec bootstrapv1.KindredConfigSpec) ([]file, error) {
	var files []file
	for _, f := range spec.Files {
		mode := uint64(0o600)
		if f.Permissions != "" {
			var err error
			if mode, err = strconv.ParseUint(f.Permissions, 8, 32); err != nil {
				return nil, waits{reason: bootstrapv1.InvalidReason, message: fmt.Sprintf("the permissions %q of %s are not an octal number", f.Permissions, f.Path)}
			}
		}
		files = append(files, file{Path: f.Path, Mode: uint32(mode), Content: []byte(f.Content)})
	}
	if spec.KubeletConfiguration != "" {
		files = append(files, file{Path: kubeletConfigDir + "/50-kindredconfig.conf", Mode: 0o644, Content: []byte(spec.KubeletConfiguration)})
	}
	return files, nil
}

// rangesOf returns the flags with the ranges of addresses that a Cluster names.
func rangesOf(cluster *clusterv1.Cluster) ([]string, error) {
	var flags []string
	network := cluster.Spec.ClusterNetwork
	if ranges := network.Services.CIDRBlocks; len(ranges) > 0 {
		flags = append(flags, "--service-cidr", strings.Join(ranges, ","))
	}
	if ranges := network.Pods.CIDRBlocks; len(ranges) > 0 {
		flags = append(flags, "--cluster-cidr", strings.Join(ranges, ","))
	}
	if domain := network.ServiceDomain; domain != "" && domain != "cluster.local" {
		return nil, waits{reason: bootstrapv1.InvalidReason, message: fmt.Sprintf("the Cluster's service domain is %q, and Kindred has cluster.local", domain)}
	}
	return flags, nil
}
