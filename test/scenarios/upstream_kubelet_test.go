// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	sandbox "github.com/kindred-project/kindred/internal/containerd/pause"
	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

// TestUpstreamKubeletsJoin: upstream's kubelets of the served minor version and of the one before get certificates with a token of "kindred
// token create", and run pods, which the API and pods of other nodes reach. Their machines have a container runtime and a pod network of
// their own, as an administrator provides them.
func TestUpstreamKubeletsJoin(t *testing.T) {
	needUpstream(t)
	needContainers(t)
	l := newLAN(t)
	c := l.serverWithNode(1, "--server", "--node-name", "one")
	s := newSession(t, c)
	s.runsOn("one", "here")
	for number, minor := range map[int]string{6: "v1.36", 7: "v1.37"} {
		t.Run(minor, func(t *testing.T) {
			program, err := servers.BuildKubelet(t.Context(), "../servers", minor)
			if err != nil {
				t.Fatal(err)
			}
			s := inNamespace(t, c, s.namespace)
			name := "kubelet-" + strings.TrimPrefix(minor, "v1.")
			k := &kubelet{session: s, machine: l.machine(number), program: program, name: name}
			k.join()
			k.checkNode(minor)
			s.runsOn(name, name)
			s.prints(name+"\n", "exec", name, "--", "cat", "/www/index.html")
			s.eventually("logs", func() error {
				if r := s.try("logs", name); !strings.Contains(r.out, "served by "+name) {
					return fmt.Errorf("%q, %s", r.out, r.err)
				}
				return nil
			})
			s.reaches("here", s.pod(name).Status.PodIP+":8080", name)
			s.kubectl("expose", "pod", name, "--port=80", "--target-port=8080")
			s.reaches("here", name+":80", name)
			s.reaches(name, s.pod("here").Status.PodIP+":8080", "here")
			s.kubectl("delete", "pod", name)
			s.kubectl("delete", "node", name)
		})
	}
}

// runsOn runs a pod that answers HTTP with its name.
func (s *session) runsOn(node, name string) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, labels: {on: %[2]s}}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "%[3]s"
    imagePullPolicy: Never
    command: [sh, -c, "mkdir /www; hostname > /www/index.html; echo served by $(hostname); exec httpd -f -p 8080 -h /www"]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
`, node, name, image))
	s.ready(name)
}

// kubelet is a machine with upstream's kubelet, a containerd, and a bridge for its pods.
type kubelet struct {
	*session
	machine       *otherMachine
	program, name string
	dir           string
}

func (k *kubelet) file(name ...string) string {
	return filepath.Join(append([]string{k.dir}, name...)...)
}

// start starts a program on the machine.
func (k *kubelet) start(program string, args ...string) {
	k.Helper()
	p, err := startProcess(exec.Command("nsenter", append([]string{"--net=/run/netns/" + k.machine.namespace, program}, args...)...))
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() {
		if k.Failed() {
			k.Logf("%s:\n%s", program, tail(p.out.String(), 8000))
		}
		p.end()
	})
}

// join starts the runtime and the kubelet, and, once the cluster has given the node a range, the pod network.
func (k *kubelet) join() {
	k.Helper()
	var err error
	if k.dir, err = os.MkdirTemp("", "kubelet"); err != nil { // short, because sockets have short names
		k.Fatal(err)
	}
	k.Cleanup(func() { // the kubelet mounts its directory on itself
		out, err := exec.Command("umount", "--recursive", k.file("kubelet")).CombinedOutput()
		if err != nil {
			k.Errorf("umount: %v: %s", err, out)
		}
		if err := os.RemoveAll(k.dir); err != nil {
			k.Error(err)
		}
	})
	k.write("containerd.toml", fmt.Sprintf(`version = 2
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins."io.containerd.internal.v1.opt"]
  path = %[4]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:v1"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %[5]q
`, k.file("root"), k.file("state"), k.file("containerd.sock"), k.file("opt"), k.file("net.d")))
	k.start("containerd", "--config", k.file("containerd.toml"))
	k.eventually("containerd has the images", k.importImages)
	k.write("kubelet.yaml", fmt.Sprintf(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[1]s}}
authorization: {mode: Webhook}
serverTLSBootstrap: true
rotateCertificates: true
containerRuntimeEndpoint: unix://%[2]s
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
podLogsDir: %[3]s
volumePluginDir: %[4]s
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
evictionHard: {nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%, imagefs.inodesFree: 0%%}
`, k.file("ca.crt"), k.file("containerd.sock"), k.file("pods"), k.file("plugins")))
	k.writeBootstrap()
	k.start(k.program, "--config="+k.file("kubelet.yaml"), "--bootstrap-kubeconfig="+k.file("bootstrap"), "--kubeconfig="+k.file("kubeconfig"),
		"--root-dir="+k.file("kubelet"), "--cert-dir="+k.file("pki"), "--hostname-override="+k.name, "--node-ip="+k.machine.address)
	var node *corev1.Node
	k.eventually("the node has a range", func() (err error) {
		if node, err = k.node(); err == nil && node.Spec.PodCIDR == "" {
			err = errors.New("none")
		}
		return err
	})
	k.connect(node.Spec.PodCIDR)
}

func (k *kubelet) node() (*corev1.Node, error) {
	return k.cluster.client(k.T).CoreV1().Nodes().Get(k.Context(), k.name, metav1.GetOptions{})
}

func (k *kubelet) write(name, content string) {
	k.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(k.file(name)), 0o755), os.WriteFile(k.file(name), []byte(content), 0o600)); err != nil {
		k.Fatal(err)
	}
}

// importImages loads the scenarios' images, and one of sandboxes.
func (k *kubelet) importImages() error {
	file, err := archive()
	if err != nil {
		return err
	}
	program, pauseFile := k.file("pause"), k.file("pause.tar")
	elf, err := sandbox.Binary(runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(program, elf, 0o755), images.Program(pauseFile, program, "docker.io/library/pause:v1")); err != nil {
		return err
	}
	for _, f := range []string{file, pauseFile} {
		out, err := exec.Command("ctr", "--address", k.file("containerd.sock"), "--namespace", "k8s.io", "images", "import", f).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// writeBootstrap writes a kubeconfig with a token, as "kubeadm join" does.
func (k *kubelet) writeBootstrap() {
	k.Helper()
	invitation := k.invitation() // SERVER --token TOKEN ...
	ca := k.cluster.config(k.T).CAData
	k.write("ca.crt", string(ca))
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: invitation[0], CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: invitation[2]}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
	if err := clientcmd.WriteToFile(config, k.file("bootstrap")); err != nil {
		k.Fatal(err)
	}
}

// connect gives the machine a network for pods of a range, and routes to those of the other node.
func (k *kubelet) connect(pods string) {
	k.Helper()
	network, err := json.Marshal(map[string]any{
		"cniVersion": "0.4.0", "name": "pods",
		"plugins": []map[string]any{{
			"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": k.file("addresses"), "ranges": [][]map[string]string{{{"subnet": pods}}},
				"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
			},
		}},
	})
	if err != nil {
		k.Fatal(err)
	}
	k.write("net.d/10-pods.conflist", string(network))
	one, err := k.cluster.client(k.T).CoreV1().Nodes().Get(k.Context(), "one", metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	route(k.T, k.machine.at, one.Spec.PodCIDR, one.Status.Addresses[0].Address)
}

// checkNode: the kubelet is a Ready node with certificates of the cluster.
func (k *kubelet) checkNode(minor string) {
	k.Helper()
	k.eventually("the node is ready", func() error {
		node, err := k.node()
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", node.Status.Conditions)
	})
	node, err := k.node()
	if err != nil {
		k.Fatal(err)
	}
	if !strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, minor+".") || net.ParseIP(node.Status.Addresses[0].Address).String() != k.machine.address {
		k.Errorf("version %s, addresses %v", node.Status.NodeInfo.KubeletVersion, node.Status.Addresses)
	}
	k.eventually("the kubelet has a serving certificate", func() error {
		r := k.try("get", "--raw", "/api/v1/nodes/"+k.name+"/proxy/healthz")
		if r.out != "ok" {
			return fmt.Errorf("%q, %s", r.out, r.err)
		}
		return nil
	})
}
