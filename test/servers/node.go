// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"text/template"

	"sigs.k8s.io/yaml"
)

// pauseImage is the image of sandboxes, the one that upstream's tests expect.
const pauseImage = "registry.k8s.io/pause:3.10.2"

// node has the address and the directory of a cluster's node.
type node struct {
	dir, name string
	address   netip.Addr
	pods      netip.Prefix
}

func (n node) file(name ...string) string {
	return filepath.Join(append([]string{n.dir}, name...)...)
}

// socket returns the socket of the container runtime.
func (n node) socket() string { return n.file("containerd.sock") }

func (n node) containerdConfig() string { return n.file("containerd.toml") }

// volumePlugins returns a directory that the controllers and kubelet read and create. Its default
// is outside of the cluster's directory.
func (n node) volumePlugins() string { return n.file("volume-plugins") }

// containerdSettings are the inputs of containerd's configuration.
type containerdSettings struct {
	Root, State, Socket, Hosts string
	NetworkConf, Plugins       string
	Pause, Runc                string
	RestrictOOM                bool
}

// containerdTemplate is in the format of containerd 2.x. It sets the directories, the cgroup driver
// and the image of sandboxes, which kubelet and the suite must agree with, and the restrictions of
// the machine. The rest is containerd's default.
var containerdTemplate = template.Must(template.New("containerd").Funcs(template.FuncMap{"q": strconv.Quote}).Parse(`version = 3
root = {{q .Root}}
state = {{q .State}}

[grpc]
  address = {{q .Socket}}

[plugins.'io.containerd.internal.v1.opt']
  path = {{printf "%s/opt" .Root | q}}

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'

  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = {{q .Pause}}

  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = {{q .Hosts}}

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [{{q .Plugins}}]
    conf_dir = {{q .NetworkConf}}

  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'

      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = {{q .Runc}}
        Root = {{printf "%s/runc" .State | q}}
        SystemdCgroup = false

[plugins.'io.containerd.transfer.v1.local']
  config_path = {{q .Hosts}}
`))

func (n node) containerd(runc, plugins string, restrictOOM bool) ([]byte, error) {
	var b bytes.Buffer
	err := containerdTemplate.Execute(&b, containerdSettings{
		Root: n.file("containerd"), State: n.file("containerd-state"), Socket: n.socket(), Hosts: n.file("certs.d"),
		NetworkConf: n.file("net.d"), Plugins: plugins, Pause: pauseImage, Runc: runc, RestrictOOM: restrictOOM,
	})
	return b.Bytes(), err
}

// network returns the configuration of the pod network: the bridge, and host ports.
func (n node) network() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "upstream",
		"plugins": []map[string]any{
			{
				"type":        "bridge",
				"bridge":      bridgeName,
				"isGateway":   true,
				"hairpinMode": true,
				"ipam": map[string]any{
					"type":    "host-local",
					"dataDir": n.file("addresses"),
					"ranges":  [][]map[string]string{{{"subnet": n.pods.String()}}},
					"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
}

// kubeletConfig returns upstream's defaults with the changes that this machine needs, and that a
// cluster needs on a machine with other clusters.
func (n node) kubeletConfig(c certificates) ([]byte, error) {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"address":    n.address.String(),
		"port":       kubeletPort,
		// These ports are not used, and would be open on the machine.
		"readOnlyPort": 0,
		"healthzPort":  0,

		"tlsCertFile":       c.kubelet.certificate,
		"tlsPrivateKeyFile": c.kubelet.key,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": c.authority.files.certificate},
		},
		"authorization": map[string]any{"mode": "Webhook"},

		"containerRuntimeEndpoint": "unix://" + n.socket(),
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + cgroupName,
		// Machines with cgroup v1 are supported too.
		"failCgroupV1":    false,
		"failSwapOn":      false,
		"podLogsDir":      n.file("pods"),
		"volumePluginDir": n.volumePlugins(),
		"clusterDomain":   "cluster.local",
		"clusterDNS":      []string{dnsAddress},
		"resolvConf":      "/etc/resolv.conf",
		// These chains are a hint for other programs, and would not be removed.
		"makeIPTablesUtilChains": false,
	}
	maps.Copy(config, anyDisk())
	return yaml.Marshal(config)
}

func (n node) kubeletFlags(c certificates, config string) []string {
	return []string{
		"--config=" + config,
		"--kubeconfig=" + c.node,
		"--root-dir=" + n.file("kubelet"),
		"--cert-dir=" + n.file("kubelet", "pki"),
		"--hostname-override=" + n.name,
		"--node-ip=" + n.address.String(),
	}
}

// proxyConfig returns a configuration that does not change the machine's connection tracking.
func (n node) proxyConfig(c certificates) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"clientConnection":   map[string]any{"kubeconfig": c.proxy},
		"hostnameOverride":   n.name,
		"clusterCIDR":        n.pods.String(),
		"healthzBindAddress": at(n.address, proxyPort),
		"metricsBindAddress": at(n.address, proxyMetricsPort),
		"conntrack": map[string]any{
			"maxPerCore": 0, "min": 0,
			"tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	})
}

// networkPlugins returns the directory of CNI's plugins: Debian's, or that of CNI's own releases.
func networkPlugins() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no CNI plugins; run \"make deps\"")
}

var containerdVersion = regexp.MustCompile(`\bv?(\d+)\.\d+\.\d+`)

// checkContainerd refuses a containerd that upstream's kubelet does not support.
func (u UpstreamCluster) checkContainerd(ctx context.Context) error {
	containerd, err := u.runtimeProgram("containerd")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, containerd, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", containerd, err)
	}
	return supported(string(out))
}

func supported(version string) error {
	match := containerdVersion.FindStringSubmatch(version)
	if match == nil {
		return fmt.Errorf("containerd does not tell its version: %q", version)
	}
	if major, err := strconv.Atoi(match[1]); err != nil || major < 2 {
		return fmt.Errorf("upstream's kubelet %s wants containerd 2 or newer, and this is %s; leave RUNTIME out to have one built", upstreamVersion, match[0])
	}
	return nil
}
