// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kindred-project/kindred/test/servers"
)

const draDriverName = "test.dra.example.com"

const draManifest = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "test.dra.example.com"'}}], extendedResourceName: example.com/gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: own}
spec: {spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}, {name: b, exactly: {deviceClassName: gpu}}]}}}
---
`

// draUser is a pod with a claim, whose container prints what devices it has.
func draUser(name, claim, request string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: ` + image + `
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
    resources: {claims: [{name: gpu` + request + `}]}
  resourceClaims: [{name: gpu, ` + claim + `}]
`
}

// TestDRA: a driver, as a plain process, prepares the devices of claims before pods run and unprepares them
// after the last pod, whatever is killed meanwhile.
func TestDRA(t *testing.T) {
	c, driver := ownClusterWithDRADriver(t)
	s := newSession(t, c)
	s.published(driver, 1)
	s.apply(draManifest)

	// Two pods share a claim, which is prepared once. The second starts after everything was killed.
	s.apply(draUser("first", "resourceClaimName: shared", ""))
	s.ready("first")
	driver.expectCalls("prepare shared", 1)
	device := strings.TrimSpace(s.kubectl("exec", "first", "--", "sh", "-c", "echo $GPU_a"))
	s.prints(device+"\n", "get", "resourceclaim", "shared", "-o", `jsonpath={.status.allocation.devices.results[0].device}{"\n"}`)
	s.health("first", "Healthy")
	driver.monitored("first", device)
	c.kill(t)
	driver.kill()
	c.again(t)
	driver.start()
	s.eventually("the first pod has the device", func() error {
		return s.expect(device, "exec", "first", "--", "sh", "-c", "echo $GPU_a")
	})
	s.apply(draUser("second", "resourceClaimName: shared", ""))
	s.ready("second")
	s.prints(device+"\n", "exec", "second", "--", "sh", "-c", "echo $GPU_a")
	driver.write("unhealthy", "overheated")
	s.health("first", "Unhealthy overheated")
	driver.remove("unhealthy")
	s.kubectl("delete", "pod", "first")
	s.prints(device+"\n", "exec", "second", "--", "sh", "-c", "echo $GPU_a")
	driver.expectCalls("unprepare shared", 0)
	s.kubectl("delete", "resourceclaim", "shared", "--wait=false")
	s.kubectl("delete", "pod", "second")
	driver.expectCalls("unprepare shared", 1)
	s.gone("resourceclaim", "shared")

	// A claim of a template: a container gets the devices of its request. The driver dies in the middle of
	// preparing, then the cluster does.
	s.published(driver, 1)
	driver.write("hold", "")
	s.apply(draUser("killed", "resourceClaimTemplateName: own", ", request: b"))
	claim := s.claimOf("killed")
	s.calls(driver, "prepare "+claim, 1)
	driver.kill()
	s.eventually("an event says what failed", func() error {
		out := s.kubectl("get", "events", "--field-selector", "involvedObject.name=killed,reason=FailedPrepareDynamicResources")
		if !strings.Contains(out, "Failed to prepare dynamic resources: prepare dynamic resources: ") {
			return fmt.Errorf("events:\n%s", out)
		}
		return nil
	})
	driver.start()
	s.calls(driver, "prepare "+claim, 2)
	c.kill(t)
	driver.remove("hold")
	c.again(t)
	s.ready("killed")
	if out := s.kubectl("exec", "killed", "--", "sh", "-c", "echo a=$GPU_a b=$GPU_b"); !strings.HasPrefix(out, "a= b=gpu-") {
		t.Errorf("devices %q", out)
	}

	// The cluster dies after the pod was deleted by force: the claim is unprepared all the same.
	s.kubectl("delete", "pod", "killed", "--force", "--grace-period=0", "--wait=false")
	c.kill(t)
	c.again(t)
	s.gone("pod", "killed")
	s.calls(driver, "unprepare "+claim, 1)
	s.gone("resourceclaim", claim)

	// A pod gets devices for an extended resource. They are unprepared when it is over.
	s.published(driver, 1)
	s.apply(extendedUser)
	s.phase("extended", "Succeeded")
	s.contains(s.kubectl("logs", "extended"), "gpu-")
	driver.nothingLeft()

	// The ResourceSlices of a driver that stays away are removed.
	driver.kill()
	s.published(driver, 0)
}

const extendedUser = `
apiVersion: v1
kind: Pod
metadata: {name: extended}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: ` + image + `
    command: [sh, -c, echo $GPU_container_0_request_0]
    resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 1}}
`

// ownClusterWithDRADriver starts a cluster, whose runtime supports CDI, and a driver on its node.
func ownClusterWithDRADriver(t *testing.T, args ...string) (*cluster, *draDriver) {
	t.Helper()
	needContainers(t)
	useContainerd2(t)
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	c := ownClusterWithNode(t, append(args, "--kubelet-dir", kubelet)...)
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	driver := newDRADriver(t, nodes.Items[0].Name, kubelet, c.kubeconfig())
	driver.start()
	return c, driver
}

// useContainerd2 makes the clusters of a scenario use containerd 2, which is newer than Debian's.
func useContainerd2(t *testing.T) {
	t.Helper()
	runtime, err := servers.BuildContainerd(t.Context(), "../conformance/containerd", "../servers/bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", runtime+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// calls waits until the driver got a call so many times.
func (s *session) calls(d *draDriver, call string, n int) {
	s.Helper()
	s.eventually("the driver gets the call "+call, func() error {
		if got := d.called(call); got < n {
			return fmt.Errorf("%d times", got)
		}
		return nil
	})
}

// published waits until the API has so many ResourceSlices of the driver.
func (s *session) published(d *draDriver, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("the driver has %d ResourceSlices", n), func() error {
		out := s.kubectl("get", "resourceslices", "--field-selector", "spec.driver="+draDriverName+",spec.nodeName="+d.node, "-o", "name")
		if found := strings.Count(out, "\n"); found != n {
			return fmt.Errorf("%d:\n%s", found, out)
		}
		return nil
	})
}

// health waits until a pod's status shows the health of its device.
func (s *session) health(pod, want string) {
	s.Helper()
	s.eventually("the status shows the device as "+want, func() error {
		got := s.jsonpath("{range .status.containerStatuses[*].allocatedResourcesStatus[*].resources[*]}{.health} {.message}{end}", "pod", pod)
		if strings.TrimSpace(got) != want {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// claimOf waits for the claim that was created for a pod.
func (s *session) claimOf(pod string) (name string) {
	s.Helper()
	s.eventually("the pod's claim is created", func() error {
		name = s.jsonpath("{.status.resourceClaimStatuses[0].resourceClaimName}", "pod", pod)
		if name == "" {
			return fmt.Errorf("pod %s has none", pod)
		}
		return nil
	})
	return name
}

// draDriver is the driver of test/dradriver.
type draDriver struct {
	*testing.T
	binary, node, data, registry, kubeconfig string
	process                                  *process
}

func newDRADriver(t *testing.T, node, kubelet, kubeconfig string) *draDriver {
	t.Helper()
	dir := t.TempDir()
	d := &draDriver{
		T: t, node: node, binary: filepath.Join(dir, "dradriver"), data: filepath.Join(dir, "data"),
		registry: filepath.Join(kubelet, "plugins_registry"), kubeconfig: kubeconfig,
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", d.binary, "../dradriver")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("calls of the driver:\n%s\noutput:\n%s", d.calls(), d.output())
		}
		d.kill()
		for _, file := range d.cdiFiles() {
			_ = os.Remove(file)
		}
	})
	return d
}

func (d *draDriver) start() {
	d.Helper()
	p, err := startProcess(exec.Command(d.binary, "--node", d.node, "--data", d.data, "--registry", d.registry, "--kubeconfig", d.kubeconfig))
	if err != nil {
		d.Fatal(err)
	}
	d.process = p
}

func (d *draDriver) output() string {
	if d.process == nil {
		return ""
	}
	return d.process.out.String()
}

// kill ends the driver as SIGKILL does. Its sockets stay.
func (d *draDriver) kill() {
	if d.process != nil {
		_ = d.process.cmd.Process.Kill()
		<-d.process.done
		d.process = nil
	}
}

func (d *draDriver) write(file, text string) {
	d.Helper()
	if err := os.WriteFile(filepath.Join(d.data, file), []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
}

func (d *draDriver) remove(file string) {
	d.Helper()
	if err := os.Remove(filepath.Join(d.data, file)); err != nil {
		d.Fatal(err)
	}
}

func (d *draDriver) calls() string {
	data, _ := os.ReadFile(filepath.Join(d.data, "calls"))
	return string(data)
}

// called returns how many times the driver got a call.
func (d *draDriver) called(call string) (n int) {
	for line := range strings.Lines(d.calls()) {
		if line == call+"\n" {
			n++
		}
	}
	return n
}

// monitored checks what the node's PodResources API says of a pod with one device.
func (d *draDriver) monitored(pod, device string) {
	d.Helper()
	socket := filepath.Join(filepath.Dir(d.registry), "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.Fatal(err)
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(d.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil {
		d.Fatal(err)
	}
	if len(list.PodResources) != 1 || list.PodResources[0].Name != pod {
		d.Fatalf("pods %v", list)
	}
	claims := list.PodResources[0].Containers[0].DynamicResources
	if len(claims) != 1 || len(claims[0].ClaimResources) != 1 || claims[0].ClaimResources[0].DeviceName != device {
		d.Errorf("devices %v", claims)
	}
}

// expectCalls checks how many times the driver got a call.
func (d *draDriver) expectCalls(call string, n int) {
	d.Helper()
	if got := d.called(call); got != n {
		d.Errorf("%d times %q, not %d", got, call, n)
	}
}

func (d *draDriver) cdiFiles() []string {
	files, _ := filepath.Glob("/var/run/cdi/" + draDriverName + "-*.json")
	return files
}

// nothingLeft checks that no claim is prepared.
func (d *draDriver) nothingLeft() {
	d.Helper()
	if files := d.cdiFiles(); len(files) > 0 {
		d.Errorf("CDI files %v", files)
	}
	records, err := os.ReadDir(filepath.Join(filepath.Dir(d.registry), "claims"))
	if err != nil || len(records) > 0 {
		d.Errorf("records of claims %v, %v", records, err)
	}
}
