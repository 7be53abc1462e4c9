// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"text/template"
)

// version is the part of containerd's version that the configuration depends on.
type version struct {
	major, minor int
	text         string
}

var versionPattern = regexp.MustCompile(`\bv?(\d+)\.(\d+)\.\S+`)

// detectVersion returns the version that the binary prints. Debian's prints "containerd
// github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3".
func detectVersion(ctx context.Context, binary string) (version, error) {
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return version{}, fmt.Errorf("%s --version: %w", binary, err)
	}
	return parseVersion(string(out))
}

func parseVersion(out string) (version, error) {
	m := versionPattern.FindStringSubmatch(out)
	if m == nil {
		return version{}, fmt.Errorf("containerd prints no version: %q", strings.TrimSpace(out))
	}
	// The pattern matches digits only. After an overflow the number is too large, like an unknown
	// newer version's.
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	v := version{major: major, minor: minor, text: strings.TrimPrefix(m[0], "v")}
	if major < 1 || (major == 1 && minor < 6) {
		return version{}, fmt.Errorf("containerd %s is too old: CRI v1 came with 1.6; install a newer one", v.text)
	}
	return v, nil
}

// settings are the parameters of the configuration template.
type settings struct {
	Root, State, Socket string
	Hosts               string // registry host configuration, one directory for each registry
	NetworkConf         string // directory of the CNI configuration
	NetworkBin          string // directory of the CNI plugins
	Runc                string
	Crun                string // empty if it is not installed
	Snapshotter         string
	Cgroup              string
	SystemdCgroup       bool // the cgroups of containers are scopes of systemd
	RestrictOOM         bool
	Pause               string
	Disabled            []string
}

// disabledPlugins are plugins that pods do not need. Each would use memory, create files outside of the data
// directory, or log that it does not work. disabledFor adds the snapshotters that are not used.
var disabledPlugins = []string{
	"io.containerd.internal.v1.restart",
	"io.containerd.internal.v1.tracing",
	"io.containerd.monitor.v1.cgroups",
	"io.containerd.tracing.processor.v1.otlp",
}

var snapshotters = []string{"aufs", "blockfile", "btrfs", "devmapper", "erofs", "native", "overlayfs", "zfs"}

func disabledFor(snapshotter string) []string {
	disabled := append([]string(nil), disabledPlugins...)
	for _, s := range snapshotters {
		if s != snapshotter {
			disabled = append(disabled, "io.containerd.snapshotter.v1."+s)
		}
	}
	return disabled
}

// render returns the configuration in the format of the version: 1.x reads version 2, 2.x reads version 3, in
// which the CRI plugin is split into three.
func (s settings) render(v version) ([]byte, error) {
	t := configV2
	if v.major >= 2 {
		t = configV3
	}
	var b bytes.Buffer
	data := struct {
		settings
		// containerd 2.1 supports several directories for network plugins.
		SeveralBinDirs bool
		// containerd 1.7 has devices of CDI, switched off; they are always on since 2.0, from the same directories.
		CDISwitch bool
	}{s, v.major > 2 || (v.major == 2 && v.minor >= 1), v.major == 1 && v.minor >= 7}
	if err := t.Execute(&b, data); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// handler is an OCI runtime that pods can choose with a RuntimeClass.
type handler struct{ Name, Binary string }

// Handlers returns the OCI runtimes that are installed.
func (s settings) Handlers() []handler {
	all := []handler{{"runc", s.Runc}}
	if s.Crun != "" {
		all = append(all, handler{"crun", s.Crun})
	}
	return all
}

func configTemplate(name, text string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{"q": strconv.Quote}).Parse(text))
}

const configHead = `# Written by kindred at each start.
root = {{q .Root}}
state = {{q .State}}
disabled_plugins = [{{range $i, $p := .Disabled}}{{if $i}}, {{end}}{{q $p}}{{end}}]

[grpc]
  address = {{q .Socket}}

[debug]
  level = "warn"

[cgroup]
  path = {{q .Cgroup}}
`

// The unprivileged ports and ICMP sockets are containerd 2's default; 1.x gets
// the same, so that an image works alike on both.
var configV2 = configTemplate("config version 2", "version = 2\n"+configHead+`
[plugins."io.containerd.internal.v1.opt"]
  path = {{printf "%s/opt" .Root | q}}

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {{q .Pause}}
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
{{- if .CDISwitch}}
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
{{- end}}

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {{q .NetworkBin}}
    conf_dir = {{q .NetworkConf}}

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {{q .Hosts}}

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = {{q .Snapshotter}}
    default_runtime_name = "runc"
{{- range .Handlers}}

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.Name}}]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.Name}}.options]
        BinaryName = {{q .Binary}}
        Root = {{printf "%s/%s" $.State .Name | q}}
        SystemdCgroup = {{$.SystemdCgroup}}
{{- end}}
`)

var configV3 = configTemplate("config version 3", "version = 3\n"+configHead+`
[plugins.'io.containerd.internal.v1.opt']
  path = {{printf "%s/opt" .Root | q}}

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.cri.v1.images']
  snapshotter = {{q .Snapshotter}}

  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = {{q .Pause}}

  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = {{q .Hosts}}

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    {{if .SeveralBinDirs}}bin_dirs = [{{q .NetworkBin}}]{{else}}bin_dir = {{q .NetworkBin}}{{end}}
    conf_dir = {{q .NetworkConf}}

  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
{{- range .Handlers}}

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.Name}}]
      runtime_type = "io.containerd.runc.v2"

      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.Name}}.options]
        BinaryName = {{q .Binary}}
        Root = {{printf "%s/%s" $.State .Name | q}}
        SystemdCgroup = {{$.SystemdCgroup}}
{{- end}}

[plugins.'io.containerd.transfer.v1.local']
  config_path = {{q .Hosts}}

  [[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
    platform = "linux"
    snapshotter = {{q .Snapshotter}}
`)
