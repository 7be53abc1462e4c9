// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// EtcHosts is where a container sees the pod's hosts file.
const EtcHosts = "/etc/hosts"

// The longest pod host name that the API documents, and the longest that Linux takes
// (HOST_NAME_MAX).
const (
	maxHostname   = 63
	kernelMaxName = 64
)

// hostname returns a pod's host name, and the domain that follows from its subdomain.
func hostname(pod *v1.Pod, clusterDomain string) (name, domain string, err error) {
	if override := pod.Spec.HostnameOverride; override != nil {
		return shorten(*override), "", nil
	}
	name = pod.Name
	if pod.Spec.Hostname != "" {
		if problems := validation.IsDNS1123Label(pod.Spec.Hostname); len(problems) > 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", pod.Spec.Hostname, strings.Join(problems, ";"))
		}
		name = pod.Spec.Hostname
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	return shorten(name), domain, nil
}

func shorten(name string) string {
	if len(name) <= maxHostname {
		return name
	}
	return strings.TrimRight(name[:maxHostname], "-.")
}

// kernelHostname returns the host name of the sandbox: with setHostnameAsFQDN, the fully
// qualified one.
func kernelHostname(pod *v1.Pod, name, domain string) (string, error) {
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return name, nil
	}
	full := name + "." + domain
	if len(full) > kernelMaxName {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", full, kernelMaxName, len(full))
	}
	return full, nil
}

// hostsFile returns the content of the pod's /etc/hosts. A pod on the host's network gets the
// node's own entries, nodeHosts.
func hostsFile(pod *v1.Pod, ips []string, name, domain string, nodeHosts []byte) []byte {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(nodeHosts)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n")
		b.WriteString("127.0.0.1\tlocalhost\n")
		b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
		b.WriteString("fe00::0\tip6-localnet\n")
		b.WriteString("fe00::0\tip6-mcastprefix\n")
		b.WriteString("fe00::1\tip6-allnodes\n")
		b.WriteString("fe00::2\tip6-allrouters\n")
		for _, ip := range ips {
			if domain != "" {
				fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, name, domain, name)
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, name)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, alias := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
		}
	}
	return b.Bytes()
}

// WriteHosts writes the pod's hosts file, with the addresses in its status, and returns the
// file's path. It writes in place, because the file is bind-mounted into running containers. The
// file is not synced: no container survives power loss, and the next start writes it again.
func (h Host) WriteHosts(pod *v1.Pod) (string, error) {
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	name, domain, err := hostname(pod, h.DNS.Domain)
	if err != nil {
		return "", err
	}
	var nodeHosts []byte
	if pod.Spec.HostNetwork {
		if nodeHosts, err = os.ReadFile(EtcHosts); err != nil {
			return "", fmt.Errorf("read the node's hosts file: %w", err)
		}
	}
	path := h.Layout.HostsFile(pod.UID)
	content := hostsFile(pod, ips, name, domain, nodeHosts)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("create the pod's directory: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return "", fmt.Errorf("write the pod's hosts file: %w", err)
	}
	return path, nil
}
