// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// Fields that a file sets are kept, the others get their defaults.
func TestParse(t *testing.T) {
	c, err := Parse([]byte(head + "maxPods: 20\nevictionHard: {memory.available: 1Gi}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxPods != 20 || c.EvictionHard["memory.available"] != "1Gi" || len(c.EvictionHard) != 1 {
		t.Errorf("maxPods %d, evictionHard %v: the file's values are lost", c.MaxPods, c.EvictionHard)
	}
	if c.NodeStatusReportFrequency.Duration != 5*time.Minute {
		t.Errorf("nodeStatusReportFrequency %v, want the default", c.NodeStatusReportFrequency.Duration)
	}
}

// With mergeDefaultEvictionSettings, the thresholds of a file are added to the defaults, and replace them otherwise.
func TestMergeDefaultEvictionSettings(t *testing.T) {
	for merge, want := range map[string]int{"true": 6, "false": 2} {
		c, err := Parse([]byte(head + "evictionHard: {memory.available: 1Gi, pid.available: 5%}\nmergeDefaultEvictionSettings: " + merge))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.EvictionHard) != want || c.EvictionHard["memory.available"] != "1Gi" {
			t.Errorf("mergeDefaultEvictionSettings %s: %v", merge, c.EvictionHard)
		}
	}
	if len(evictionHard) != 5 {
		t.Errorf("the defaults have changed: %v", evictionHard)
	}
}

// A configuration without a file is that of a file without fields.
func TestDefault(t *testing.T) {
	c, err := Parse([]byte(head))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.TypeMeta, want.set = c.TypeMeta, c.set
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        `apiVersion and kind are "" and ""`,
		"kind: Pod":                               `kind`,
		head + "maxpod: 3":                        `unknown field "maxpod"`,
		head + "maxPods: many":                    "cannot unmarshal",
		head + "maxPods: -1":                      "maxPods is -1, and must be at least 0",
		head + "maxPods: [":                       "did not find expected node content",
		head + "maxPods: 1\nmaxPods: 2":           "already set",
		head + "containerLogMaxSize: ten":         `containerLogMaxSize is "ten"`,
		head + "containerLogMaxFiles: 1":          "containerLogMaxFiles is 1",
		head + "imageGCHighThresholdPercent: 101": "imageGCHighThresholdPercent is 101",
		head + "imageGCHighThresholdPercent: 80":  "imageGCLowThresholdPercent is 80",
		head + "imageMinimumGCAge: -1s":           "imageMinimumGCAge is -1s",
		head + "imageMaximumGCAge: 1m":            "imageMaximumGCAge is 1m0s",

		head + "allowedUnsafeSysctls: [kernel.*.max]":    `"kernel.*.max" is not the name of a sysctl`,
		head + "allowedUnsafeSysctls: [net.*, vm.swap*]": `allowedUnsafeSysctls: "vm.swap*" is not in a namespace`,

		head + "evictionHard: {memory.free: 1Gi}":                                             `evictionHard has "memory.free", which is no eviction signal`,
		head + "kubeReserved: {gpu: 1}":                                                       `kubeReserved has "gpu", and may have cpu, memory`,
		head + "systemReserved: {memory: -1}":                                                 `systemReserved[memory] is "-1", and must be a quantity`,
		head + "enforceNodeAllocatable: [kube-reserved]":                                      `enforceNodeAllocatable has "kube-reserved", and may have pods or none`,
		head + "enforceNodeAllocatable: [pods, none]":                                         "enforceNodeAllocatable has none",
		head + "oomScoreAdj: -1001":                                                           "oomScoreAdj is -1001, and must be from -1000 to 1000",
		head + "evictionSoft: {memory.available: 1Gi}":                                        "evictionSoftGracePeriod must have it as well",
		head + "evictionPressureTransitionPeriod: -1m":                                        "evictionPressureTransitionPeriod is -1m0s",
		head + "evictionMinimumReclaim: {pid.available: -1}":                                  "evictionMinimumReclaim[pid.available]",
		head + "memorySwap: {swapBehavior: UnlimitedSwap}":                                    "memorySwap.swapBehavior is \"UnlimitedSwap\"",
		head + "memoryThrottlingFactor: 0":                                                    "memoryThrottlingFactor is 0",
		head + "memoryThrottlingFactor: 1.5":                                                  "memoryThrottlingFactor is 1.5, and must be greater than 0 and at most 1",
		head + "memoryReservationPolicy: All":                                                 "memoryReservationPolicy is \"All\", and must be None or TieredReservation",
		head + "memoryReservationPolicy: TieredReservation\nfeatureGates: {MemoryQoS: false}": "needs the feature gate MemoryQoS",
		head + "userNamespaces: {idsPerPod: 65537}":                                           "userNamespaces.idsPerPod is 65537, and must be a multiple of 65536",
		head + "healthzPort: 65536":                                                           "healthzPort is 65536",
		head + "authorization: {mode: X}":                                                     `authorization.mode is "X"`,
		head + "authorization: {webhook: {cacheAuthorizedTTL: -1s}}":                          "authorization.webhook.cacheAuthorizedTTL is -1s",
		head + "healthzBindAddress: here":                                                     `healthzBindAddress is "here"`,
		head + "readOnlyPort: 10250":                                                          "readOnlyPort is 10250, as port",
		head + "enableSystemLogHandler: false\nenableSystemLogQuery: true":                    "enableSystemLogQuery needs enableSystemLogHandler",
		head + "cpuManagerPolicy: fast":                                                       `cpuManagerPolicy is "fast", and must be none or static`,
		head + "memoryManagerPolicy: static":                                                  `memoryManagerPolicy is "static", and must be None or Static`,
		head + "topologyManagerScope: node":                                                   `topologyManagerScope is "node"`,
		head + "cpuManagerReconcilePeriod: -1s":                                               "cpuManagerReconcilePeriod is -1s",
		head + "systemReserved: {cpu: many}":                                                  `systemReserved[cpu] is "many"`,
		head + "reservedSystemCPUs: two":                                                      `reservedSystemCPUs is "two"`,
		head + "reservedSystemCPUs: 0\nkubeReservedCgroup: /k":                                "reservedSystemCPUs can't be used with",
		head + "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: 'true'}": "Alpha-level Options not enabled",
		head + "cgroupDriver: runc":                                                           `cgroupDriver is "runc", and must be cgroupfs or systemd`,
		head + "cgroupRoot: nodes":                                                            `cgroupRoot is "nodes", and must be the absolute path`,
		head + "crashLoopBackOff: {maxContainerRestartPeriod: 999ms}":                         "crashLoopBackOff.maxContainerRestartPeriod is 999ms, and must be from 1s to 300s",
		head + "crashLoopBackOff: {maxContainerRestartPeriod: 301s}":                          "crashLoopBackOff.maxContainerRestartPeriod is 5m1s",
		head + "cpuCFSQuotaPeriod: 999us":                                                     "cpuCFSQuotaPeriod is 999µs, and must be from 1ms to 1s",
		head + "cpuCFSQuotaPeriod: 0s":                                                        "cpuCFSQuotaPeriod is 0s",
		head + "cpuCFSQuotaPeriod: 1001ms":                                                    "cpuCFSQuotaPeriod is 1.001s",
		head + "registryPullQPS: -1":                                                          "registryPullQPS is -1, and must be at least 0",
		head + "registryBurst: -1":                                                            "registryBurst is -1, and must be at least 0",
		head + "maxParallelImagePulls: 0":                                                     "maxParallelImagePulls is 0, and must be at least 1",
		head + "maxParallelImagePulls: 2\nserializeImagePulls: true":                          "maxParallelImagePulls is 2, and may be greater than 1 only if serializeImagePulls is false",
		head + "imagePullCredentialsVerificationPolicy: Never":                                `imagePullCredentialsVerificationPolicy is "Never", and must be NeverVerify, NeverVerifyPreloadedImages`,
		head + "tlsMinVersion: TLS12":                                                         `tlsMinVersion: unknown tls version "TLS12"`,
		head + "tlsCipherSuites: [WITH_NULL]":                                                 "tlsCipherSuites: Cipher suite WITH_NULL not supported",
		head + "tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]":                     "which HTTP/2 needs",
		head + "tlsCurvePreferences: [29, 29]":                                                "tlsCurvePreferences: duplicate curve preference 29",
		head + "tlsCurvePreferences: [1]":                                                     "tlsCurvePreferences: curve preference 1 is not supported",
		head + "crashLoopBackOff: {maxContainerRestartPeriod: 9s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}": "needs the feature gate KubeletCrashLoopBackOffMax",
		head + "cpuCFSQuotaPeriod: 10ms\nfeatureGates: {CustomCPUCFSQuotaPeriod: false}":                              "needs the feature gate CustomCPUCFSQuotaPeriod",
		head + "shutdownGracePeriod: 1ms":            "shutdownGracePeriod is 1ms, and must be 0 or at least 1s",
		head + "shutdownGracePeriodCriticalPods: 2s": "may be at most shutdownGracePeriod, which is 0s",
		head + "shutdownGracePeriod: 9s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]": "only one of them may be",
		head + "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]":                         "has -1 seconds for priority 1",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// A field without effect is named, once, and no other.
func TestIgnored(t *testing.T) {
	c, err := Parse([]byte(head + `maxPods: 20
kubeAPIQPS: 5
tlsCertFile: /cert
cgroupsPerQOS: false
# Defaults, as tools write them out:
kubeAPIBurst: 100
volumePluginDir: ""
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}}, verbosity: 0}
systemCgroups: null
clusterDNS: []
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"cgroupsPerQOS", "kubeAPIQPS", "tlsCertFile"}
	if len(c.Ignored) != len(want) {
		t.Fatalf("got %q", c.Ignored)
	}
	for i, field := range want {
		if !strings.Contains(c.Ignored[i], field) {
			t.Errorf("got %q, want %s", c.Ignored[i], field)
		}
	}
}

// Each field that is said to have no effect exists.
func TestFieldsExist(t *testing.T) {
	var names []string
	for field := range reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	for name := range withoutEffect {
		if !slices.Contains(names, name) {
			t.Errorf("KubeletConfiguration has no field %s", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "evictionHard: {memory.available: 1Gi}"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = Parse(text) })
}

// Files of a drop-in directory are merged over the configuration, and only they.
func TestDropIns(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := write("config", head+"maxPods: 5\nevictionHard: {memory.available: 1Mi, pid.available: 1%}\nallowedUnsafeSysctls: [net.a, net.b]\n")
	drops := filepath.Join(dir, "drops")
	write("drops/20.conf", head+"maxPods: 7\nallowedUnsafeSysctls: [net.c]")
	write("drops/10.conf", head+"maxPods: 6\nevictionHard: {memory.available: 2Mi}\nsystemCgroups: /s")
	write("drops/30.yaml", head+"maxPods: 8")
	c, err := Load(file, drops)
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxPods != 7 || c.EvictionHard["memory.available"] != "2Mi" || c.EvictionHard["pid.available"] != "1%" ||
		!slices.Equal(c.AllowedUnsafeSysctls, []string{"net.c"}) || len(c.Ignored) != 1 || !c.IsSet("systemCgroups") {
		t.Errorf("got %+v", c)
	}
	if c, err = Load("", drops); err != nil || c.MaxPods != 7 || c.EvictionHard["pid.available"] != "" {
		t.Errorf("without a file: %+v, %v", c, err)
	}
	for text, want := range map[string]string{"maxPods: 9": "apiVersion and kind", head + "maxpodz: 9": `unknown field "maxpodz"`} {
		write("drops/40.conf", text)
		if _, err := Load(file, drops); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "40.conf") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Load("", filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing directory is no error")
	}
}

// Headers may be secrets.
func TestText(t *testing.T) {
	c, err := Parse([]byte(head + "eventBurst: 101\nstaticPodURL: https://pods\nstaticPodURLHeader: {Authorization: [secret]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Text()
	if err != nil || strings.Contains(text, "secret") || !strings.Contains(text, "kind: KubeletConfiguration") || !strings.Contains(text, "eventBurst: 101") {
		t.Errorf("%v in %s", err, text)
	}
	if c.StaticPodURLHeader["Authorization"][0] != "secret" {
		t.Error("the configuration was changed")
	}
}

// TestEachFieldIsKnown: a field of KubeletConfiguration is either used, or named when a file sets it.
func TestEachFieldIsKnown(t *testing.T) {
	var sources strings.Builder
	for _, dir := range []string{"..", "../../machine"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			// Defaults are no use.
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "defaults.go" {
				return err
			}
			text, err := os.ReadFile(path)
			sources.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fields := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	for i := range fields.NumField() {
		field := fields.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" {
			continue
		}
		if name == "mergeDefaultEvictionSettings" {
			continue // it is used by the defaults
		}
		_, isNamed := withoutEffect[name]
		isUsed := regexp.MustCompile(`\.` + field.Name + `\b`).MatchString(sources.String())
		if !isNamed && !isUsed {
			t.Errorf("%s is neither used nor named as without effect", name)
		}
	}
}
