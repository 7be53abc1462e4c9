// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/test/images"
)

// testOptions returns options for a temporary data directory, which is reset at the end of the test.
func testOptions(t *testing.T) Options {
	t.Helper()
	needContainerd(t)
	dir := t.TempDir()
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:8]
	names, err := NamesFor(id)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Names: names, Root: filepath.Join(dir, "containerd"), LogFile: filepath.Join(dir, "containerd.log"),
		RunDir:   filepath.Join("/run/kindred-test", id),
		Progress: func(step string) { t.Log(step) },
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log ends with: %s", lastLines(o.LogFile, 20))
		}
		if err := Reset(context.Background(), o); err != nil {
			t.Errorf("reset: %v", err)
		}
	})
	return o
}

func testDial(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := dial(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// createPod creates a pod with one busybox container, which it does not start.
func createPod(t *testing.T, o Options, conn *grpc.ClientConn, name string, command ...string) (sandbox, container string) {
	t.Helper()
	ctx := t.Context()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{CgroupParent: o.Names.PodCgroup + "/" + name},
		Labels:   map[string]string{ClusterLabel: o.Names.ID},
	}
	begin := time.Now()
	started, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sandbox %s in %v", name, time.Since(begin))
	sandbox = started.PodSandboxId
	created, err := cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
			Image:    &runtimeapi.ImageSpec{Image: "busybox"}, Command: command,
			Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox, created.ContainerId
}

// runPod starts a pod with one busybox container.
func runPod(t *testing.T, o Options, conn *grpc.ClientConn, name string, command ...string) (sandbox, container, ip string) {
	t.Helper()
	ctx := t.Context()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	sandbox, container = createPod(t, o, conn, name, command...)
	begin := time.Now()
	if _, err := cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container}); err != nil {
		t.Fatal(err)
	}
	t.Logf("container %s in %v", name, time.Since(begin))
	status, err := cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox, container, status.GetStatus().GetNetwork().GetIp()
}

// startWithBusybox starts a containerd that has the image of busybox.
func startWithBusybox(t *testing.T) (Options, *Runtime, *grpc.ClientConn) {
	t.Helper()
	o := testOptions(t)
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	importBusybox(t, r.Endpoint)
	return o, r, testDial(t, r.Endpoint)
}

func importBusybox(t *testing.T, endpoint string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "busybox.tar")
	if err := images.Busybox(file); err != nil {
		t.Fatal(err)
	}
	names, err := ImportImages(t.Context(), endpoint, file)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 1 || names[0] != images.BusyboxName {
		t.Fatalf("imported %q, want %q", names, images.BusyboxName)
	}
}

// TestStartAdoptReset starts containerd and pods, adopts both, and resets the data directory.
func TestStartAdoptReset(t *testing.T) {
	o := testOptions(t)
	ctx := t.Context()
	begin := time.Now()
	r, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(begin))
	if r.Adopted {
		t.Error("a containerd was adopted in a new data directory")
	}
	importBusybox(t, r.Endpoint)
	conn := testDial(t, r.Endpoint)
	_, first, ip := runPod(t, o, conn, "web", "httpd", "-f", "-p", "8080", "-h", "/etc")
	_, _, _ = runPod(t, o, conn, "other", "sleep", "1000")
	body := get(t, "http://"+ip+":8080/passwd")
	if !strings.HasPrefix(body, "root:x:0:0:") {
		t.Errorf("the pod's web server answers %q", body)
	}
	if !r.Network.PodCIDRs[0].Contains(mustAddr(t, ip)) {
		t.Errorf("pod address %s is not in %s", ip, r.Network.PodCIDRs[0])
	}

	begin = time.Now()
	again, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("adopted in %v", time.Since(begin))
	if !again.Adopted || again.Network.PodCIDRs[0] != r.Network.PodCIDRs[0] {
		t.Errorf("second start: adopted %v with range %s, want the first's %s", again.Adopted, again.Network.PodCIDRs[0], r.Network.PodCIDRs[0])
	}

	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	get(t, "http://"+ip+":8080/passwd") // the pod keeps serving
	begin = time.Now()
	restarted, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %v", time.Since(begin))
	if restarted.Adopted {
		t.Error("a stopped containerd was adopted")
	}
	if state := containerState(t, testDial(t, r.Endpoint), first); state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after a restart of containerd, the container is %s", state)
	}
	assertNothingLeft(t, o, true)
	begin = time.Now()
	if err := Reset(ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Logf("reset in %v", time.Since(begin))
	assertNothingLeft(t, o, false)
}

// TestResetWithoutContainerd kills containerd and the shims of running pods before the reset.
func TestResetWithoutContainerd(t *testing.T) {
	o, _, conn := startWithBusybox(t)
	sandbox, _, _ := runPod(t, o, conn, "web", "sleep", "1000")
	o = o.withDefaults()
	for _, match := range []func([]string) bool{isContainerd(o.config()), isShim(o.socket())} {
		found, err := findProcesses(match)
		if err != nil || len(found) == 0 {
			t.Fatalf("found %d processes, error %v", len(found), err)
		}
		signalAll(found, 9)
		closeAll(found)
	}
	if err := Reset(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	assertNothingLeft(t, o, false)
	if results, _ := filepath.Glob(filepath.Join(cniResults, "*"+sandbox+"*")); len(results) > 0 {
		t.Errorf("not removed: %v", results)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	var body string
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	err := poll(t.Context(), Options{}.withDefaults().Clock, 5*time.Second, func() error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		b := make([]byte, 1000)
		n, _ := response.Body.Read(b)
		body = string(b[:n])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func containerState(t *testing.T, conn *grpc.ClientConn, id string) runtimeapi.ContainerState {
	t.Helper()
	status, err := runtimeapi.NewRuntimeServiceClient(conn).ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return status.GetStatus().GetState()
}

// assertNothingLeft checks for everything that a data directory creates on a machine, and expects either all or
// none of it.
func assertNothingLeft(t *testing.T, o Options, present bool) {
	t.Helper()
	o = o.withDefaults()
	found := map[string]bool{}
	for _, match := range []func([]string) bool{isContainerd(o.config()), isShim(o.socket())} {
		processes, err := findProcesses(match)
		if err != nil {
			t.Fatal(err)
		}
		found[fmt.Sprintf("process %d", len(found))] = len(processes) > 0
		closeAll(processes)
	}
	_, err := netlink.LinkByName(o.Names.Bridge)
	found["bridge"] = err == nil
	for _, j := range jumps(o.Names) {
		found["chain "+j.to] = run(t.Context(), "", "iptables", "-t", j.table, "-S", j.to) == nil
	}
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	found["mount"], found["cgroup"] = false, false
	for _, m := range table {
		if strings.HasPrefix(m.Mountpoint, o.RunDir) || strings.HasPrefix(m.Mountpoint, o.Root) {
			found["mount"] = true
		}
		if strings.HasPrefix(m.FSType, "cgroup") && exists(filepath.Join(m.Mountpoint, o.Names.Cgroup)) {
			found["cgroup"] = true
		}
	}
	for _, path := range []string{o.Root, o.RunDir, o.LogFile} {
		found[path] = exists(path)
	}
	results, _ := filepath.Glob(filepath.Join(cniResults, o.Names.Network+"-*"))
	found["CNI results"] = len(results) > 0
	for what, is := range found {
		if is != present {
			t.Errorf("%s present: %v, want %v", what, is, present)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func mustAddr(t *testing.T, s string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestPodsReachEachOtherAndTheHost connects a pod to the host on the bridge, as to an API server, and to another
// pod, on a machine with Docker's default firewall policy, which forwards nothing.
func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	o := testOptions(t)
	if err := run(t.Context(), "", "iptables", "-P", "FORWARD", "DROP"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run(context.Background(), "", "iptables", "-P", "FORWARD", "ACCEPT") })
	network, err := EnsureNetwork(t.Context(), o.NetworkOptions())
	if err != nil {
		t.Fatal(err)
	}
	host, err := net.Listen("tcp", net.JoinHostPort(network.Gateway.String(), "0"))
	if err != nil {
		t.Fatalf("listening on the bridge before the first pod: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "host") })}
	go server.Serve(host)
	defer server.Close()

	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Network.PodCIDRs[0] != network.PodCIDRs[0] {
		t.Errorf("the range changed from %s to %s", network.PodCIDRs[0], r.Network.PodCIDRs[0])
	}
	importBusybox(t, r.Endpoint)
	conn := testDial(t, r.Endpoint)
	_, _, ip := runPod(t, o, conn, "server", "httpd", "-f", "-p", "8080", "-h", "/etc")
	_, client, _ := runPod(t, o, conn, "client", "sleep", "1000")
	get(t, "http://"+ip+":8080/passwd") // wait until it listens
	for url, want := range map[string]string{
		"http://" + host.Addr().String(): "host",
		"http://" + ip + ":8080/group":   "root:x:0:",
	} {
		answer, err := runtimeapi.NewRuntimeServiceClient(conn).ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
			ContainerId: client, Cmd: []string{"wget", "-qO-", url}, Timeout: 10,
		})
		if err != nil {
			t.Fatal(err)
		}
		if answer.ExitCode != 0 || !strings.HasPrefix(string(answer.Stdout), want) {
			t.Errorf("%s: exit code %d, answer %q, %q", url, answer.ExitCode, answer.Stdout, answer.Stderr)
		}
	}
}

// TestTwoDataDirectories runs two side by side: neither has the other's pods, and a reset of one does not affect
// the other.
func TestTwoDataDirectories(t *testing.T) {
	one, two := testOptions(t), testOptions(t)
	first, err := Start(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Start(t.Context(), two)
	if err != nil {
		t.Fatal(err)
	}
	if first.Network.PodCIDRs[0].Overlaps(second.Network.PodCIDRs[0]) {
		t.Errorf("both have pods in %s and %s", first.Network.PodCIDRs[0], second.Network.PodCIDRs[0])
	}
	importBusybox(t, first.Endpoint)
	importBusybox(t, second.Endpoint)
	runPod(t, one, testDial(t, first.Endpoint), "web", "sleep", "1000")
	conn := testDial(t, second.Endpoint)
	_, container, ip := runPod(t, two, conn, "web", "httpd", "-f", "-p", "8080", "-h", "/etc")
	if err := Reset(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	assertNothingLeft(t, one, false)
	assertNothingLeft(t, two, true)
	if state := containerState(t, conn, container); state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the reset of the other data directory, the container is %s", state)
	}
	get(t, "http://"+ip+":8080/passwd")
}

// TestImport imports every kind of archive into a real containerd, imports one image twice, and refuses one with
// a wrong digest.
func TestImport(t *testing.T) {
	o := testOptions(t)
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	image, err := images.BusyboxImage()
	if err != nil {
		t.Fatal(err)
	}
	oci := write(t, ociArchive(t, image, "example.com/oci:v1", "example.com/oci:v2"))
	docker := write(t, gzipped(t, dockerArchive(t, image, "example.com/docker:v1")))
	for range 2 {
		names, err := r.ImportImages(t.Context(), oci, docker)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"example.com/oci:v1", "example.com/oci:v2", "example.com/docker:v1"}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Fatalf("imported (-want +got):\n%s", diff)
		}
	}
	conn := testDial(t, r.Endpoint)
	for _, ref := range []string{"example.com/oci:v1", "example.com/docker:v1"} {
		present, err := hasImage(t.Context(), conn, ref)
		if err != nil || !present {
			t.Errorf("CRI knows %s: %v, %v", ref, present, err)
		}
	}
	// containerd refuses a blob with a wrong digest, and the image gets no name.
	image = withConfig(t, testImage(t), func(c *v1.ConfigFile) { c.Author = "somebody" })
	other := bytes.Replace(ociArchive(t, image, "example.com/broken:v1"), []byte("somebody"), []byte("someone!"), 1)
	if _, err := r.ImportImages(t.Context(), write(t, other)); err == nil {
		t.Error("an image with a wrong digest was imported")
	}
	if present, err := hasImage(t.Context(), conn, "example.com/broken:v1"); err != nil || present {
		t.Errorf("the refused image exists: %v, %v", present, err)
	}
}

// TestSupervise kills containerd: it is restarted, and the pod keeps running.
func TestSupervise(t *testing.T) {
	o, r, conn := startWithBusybox(t)
	_, container, _ := runPod(t, o, conn, "web", "sleep", "1000")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Supervise(ctx) }()

	first := containerdPID(t, o)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := poll(t.Context(), r.options.Clock, 10*time.Second, func() error {
		if pid := containerdPID(t, o); pid == 0 || pid == first {
			return fmt.Errorf("containerd was not restarted: process %d", pid)
		}
		return checkReady(t.Context(), conn)
	})
	if err != nil {
		t.Fatal(err)
	}
	if state := containerState(t, conn, container); state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the restart of containerd, the container is %s", state)
	}
	cancel()
	<-done
	if containerdPID(t, o) == 0 {
		t.Error("containerd stopped with its supervision")
	}
}

func containerdPID(t *testing.T, o Options) int {
	t.Helper()
	found, err := findProcesses(isContainerd(o.config()))
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(found)
	if len(found) == 0 {
		return 0
	}
	return found[0].pid
}
