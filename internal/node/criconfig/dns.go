// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The documented limits of resolv.conf.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

// DNS is the part of a pod's resolv.conf that comes from the node.
type DNS struct {
	// Servers are the cluster's DNS servers; Domain is the cluster's domain.
	Servers []string
	Domain  string
	// ResolvConf is the node's own resolver configuration.
	ResolvConf string
}

// For returns the DNS configuration of a pod, by its dnsPolicy and dnsConfig. Without DNS servers of the cluster, pods use
// those of the node.
func (n DNS) For(pod *v1.Pod) (config *runtimeapi.DNSConfig, err error) {
	config = &runtimeapi.DNSConfig{}
	if pod.Spec.DNSPolicy != v1.DNSNone {
		if config, err = readResolvConf(n.ResolvConf); err != nil {
			return nil, err
		}
	}
	if len(n.Servers) > 0 && wantsClusterDNS(pod) {
		config = n.cluster(pod, config)
	}
	if own := pod.Spec.DNSConfig; own != nil {
		config.Servers = unique(append(config.Servers, own.Nameservers...))
		config.Searches = unique(append(config.Searches, own.Searches...))
		config.Options = mergeOptions(config.Options, own.Options)
	}
	fit(config)
	return config, nil
}

func wantsClusterDNS(pod *v1.Pod) bool {
	switch pod.Spec.DNSPolicy {
	case v1.DNSClusterFirstWithHostNet:
		return true
	case v1.DNSClusterFirst:
		return !pod.Spec.HostNetwork
	}
	return false
}

func (n DNS) cluster(pod *v1.Pod, host *runtimeapi.DNSConfig) *runtimeapi.DNSConfig {
	config := &runtimeapi.DNSConfig{
		Servers:  slices.Clone(n.Servers),
		Searches: host.Searches,
		Options:  []string{"ndots:5"},
	}
	if n.Domain != "" {
		services := "svc." + n.Domain
		config.Searches = unique(append([]string{pod.Namespace + "." + services, services, n.Domain}, host.Searches...))
	}
	return config
}

func readResolvConf(path string) (*runtimeapi.DNSConfig, error) {
	config := &runtimeapi.DNSConfig{}
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return config, nil // resolv.conf(5): the name server is then the local one
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's resolver configuration: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			config.Servers = append(config.Servers, fields[1])
		case "search", "domain":
			config.Searches = nil // the last one wins
			for _, domain := range fields[1:] {
				if domain != "." {
					domain = strings.TrimSuffix(domain, ".")
				}
				config.Searches = append(config.Searches, domain)
			}
		case "options":
			config.Options = append(config.Options, fields[1:]...)
		}
	}
	return config, lines.Err()
}

// mergeOptions replaces the options that the pod sets itself.
func mergeOptions(options []string, own []v1.PodDNSConfigOption) []string {
	for _, o := range own {
		options = slices.DeleteFunc(options, func(option string) bool {
			name, _, _ := strings.Cut(option, ":")
			return name == o.Name
		})
		option := o.Name
		if o.Value != nil && *o.Value != "" {
			option += ":" + *o.Value
		}
		options = append(options, option)
	}
	return options
}

// fit drops what exceeds the limits of resolv.conf.
func fit(config *runtimeapi.DNSConfig) {
	config.Servers = config.Servers[:min(len(config.Servers), maxNameservers)]
	config.Searches = slices.DeleteFunc(config.Searches, func(domain string) bool {
		return len(domain) > validation.DNS1123SubdomainMaxLength
	})
	config.Searches = config.Searches[:min(len(config.Searches), maxSearches)]
	for len(strings.Join(config.Searches, " ")) > maxSearchLength {
		config.Searches = config.Searches[:len(config.Searches)-1]
	}
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
