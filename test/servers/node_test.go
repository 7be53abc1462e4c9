// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

var testNode = node{dir: "/cluster", name: "box", address: address, pods: podRange}

// outside returns the absolute paths in a configuration that are not below the cluster's directory.
func outside(config []byte) (paths []string) {
	for _, match := range regexp.MustCompile(`["' /](/[a-z][^"'\s]*)`).FindAllSubmatch(config, -1) {
		if path := string(match[1]); !strings.HasPrefix(path, testNode.dir+"/") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// TestConfigurationsStayInTheClustersDirectory: files elsewhere would not be removed.
func TestConfigurationsStayInTheClustersDirectory(t *testing.T) {
	c := certificates{authority: &authority{files: credential{certificate: "/cluster/ca.crt"}}}
	for name, each := range map[string]struct {
		write func() ([]byte, error)
		want  []string
	}{
		"containerd": {func() ([]byte, error) { return testNode.containerd("/usr/sbin/runc", "/usr/lib/cni", true) }, []string{"/usr/lib/cni", "/usr/sbin/runc"}},
		"network":    {testNode.network, nil},
		"kubelet":    {func() ([]byte, error) { return testNode.kubeletConfig(c) }, []string{"/etc/resolv.conf", "/kindred-upstream"}},
		"kube-proxy": {func() ([]byte, error) { return testNode.proxyConfig(c) }, nil},
	} {
		config, err := each.write()
		if err != nil {
			t.Fatal(err)
		}
		if got := outside(config); !slices.Equal(got, each.want) {
			t.Errorf("%s names %q, want %q:\n%s", name, got, each.want, config)
		}
	}
}

func TestContainerdTriesOnlyWhatItMay(t *testing.T) {
	for restricted, want := range map[bool]string{true: "restrict_oom_score_adj = true\n", false: "restrict_oom_score_adj = false\n"} {
		config, err := testNode.containerd("runc", "cni", restricted)
		if err != nil || !bytes.Contains(config, []byte(want)) {
			t.Errorf("%v; no %q in:\n%s", err, want, config)
		}
	}
}

// TestKubeletAuthentication: kubelet authenticates and authorizes as upstream's clusters do.
// Results with an open kubelet would not apply to them.
func TestKubeletAuthentication(t *testing.T) {
	ca := certificates{authority: &authority{files: credential{certificate: "/cluster/ca.crt"}}}
	content, err := testNode.kubeletConfig(ca)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Address        string `json:"address"`
		ReadOnlyPort   *int   `json:"readOnlyPort"`
		Authentication struct {
			Anonymous struct {
				Enabled *bool `json:"enabled"`
			} `json:"anonymous"`
			X509 struct {
				ClientCAFile string `json:"clientCAFile"`
			} `json:"x509"`
		} `json:"authentication"`
		Authorization struct {
			Mode string `json:"mode"`
		} `json:"authorization"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	switch {
	case config.Address != "10.200.0.1":
		t.Errorf("kubelet listens at %q", config.Address)
	case config.ReadOnlyPort == nil || *config.ReadOnlyPort != 0:
		t.Error("kubelet has a port without authentication")
	case config.Authentication.Anonymous.Enabled == nil || *config.Authentication.Anonymous.Enabled:
		t.Error("kubelet accepts anonymous requests")
	case config.Authentication.X509.ClientCAFile != "/cluster/ca.crt" || config.Authorization.Mode != "Webhook":
		t.Errorf("kubelet trusts %+v, %+v", config.Authentication, config.Authorization)
	}
}

func TestSupportedContainerd(t *testing.T) {
	for version, want := range map[string]bool{
		"containerd github.com/containerd/containerd/v2 v2.4.2 \n":                           true,
		"containerd github.com/containerd/containerd/v2 2.1.4 75cb2b7193e4\n":                true,
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n":      false,
		"containerd github.com/containerd/containerd/v2 v10.0.0 \n":                          true,
		"containerd github.com/containerd/containerd/v2 99999999999999999999.0.0, unknown\n": false,
		"containerd\n": false,
	} {
		if err := supported(version); (err == nil) != want {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tgo\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffeffffff\nCapBnd:\t000001ffffffffff\n": false,
		"CapEff:\t0000000001000000\n": true,
		"CapEff:\t0000000000000000\n": false,
	} {
		if got, err := hasCapability([]byte(status), unix.CAP_SYS_RESOURCE); err != nil || got != want {
			t.Errorf("%q: %t, %v, want %t", status, got, err, want)
		}
	}
	for _, status := range []string{"", "Name:\tgo\n", "CapEff:\tnone\n"} {
		if got, err := hasCapability([]byte(status), unix.CAP_SYS_RESOURCE); err == nil {
			t.Errorf("%q: %t", status, got)
		}
	}
}
