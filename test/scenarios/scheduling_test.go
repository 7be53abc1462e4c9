// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// placedOn waits until a pod runs on a node.
func (s *session) placedOn(pod, node string) {
	s.Helper()
	s.eventually(pod+" runs on "+node, func() error {
		p := s.pod(pod)
		if p.Spec.NodeName != node || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%s on %q", p.Status.Phase, p.Spec.NodeName)
		}
		return nil
	})
}

// unschedulable waits until a pod's condition contains a reason.
func (s *session) unschedulable(pod, reason string) {
	s.Helper()
	s.eventually(pod+" cannot be scheduled", func() error {
		for _, c := range s.pod(pod).Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, reason) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", s.pod(pod).Status.Conditions)
	})
}

// nodes returns the names of all nodes.
func (s *session) nodes() []string {
	s.Helper()
	names := strings.Fields(s.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	slices.Sort(names)
	return names
}

const oneVolume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: %[2]s}
  accessModes: [ReadWriteOncePod]
  storageClassName: %[3]s
  persistentVolumeReclaimPolicy: Retain
  local: {path: /data/%[1]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[4]s]}]}]}}
`

const oneClaim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {storageClassName: %[2]s, accessModes: [%[3]s], resources: {requests: {storage: 1Gi}}}
`

const oneUser = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  containers: [{name: c, image: any, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: %[2]s}}]
`

// TestPodsFollowTheirVolumes: a pod is placed where its claim gets the smallest volume that fits, and
// waits with upstream's words if there is none.
func TestPodsFollowTheirVolumes(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "3")
	s := newSession(t, c)
	s.apply(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
`)
	nodes := s.nodes()
	s.apply(fmt.Sprintf(oneUser, "early", "first"))
	s.unschedulable("early", `persistentvolumeclaim "first" not found`)
	s.apply(fmt.Sprintf(oneClaim, "first", "disks", "ReadWriteOncePod"))
	s.unschedulable("early", "3 node(s) didn't find available persistent volumes to bind")
	s.apply(fmt.Sprintf(oneVolume, "tiny", "1Mi", "disks", nodes[0]))
	s.apply(fmt.Sprintf(oneVolume, "right", "2Gi", "disks", nodes[1]))
	s.placedOn("early", nodes[1])
	s.prints("right Bound", "get", "pvc", "first", "-o", "jsonpath={.spec.volumeName} {.status.phase}")
	s.prints("yes", "get", "pv", "right", "-o", `jsonpath={.metadata.annotations.pv\.kubernetes\.io/bound-by-controller}`)

	// ReadWriteOncePod: the next pod waits for the first one.
	s.apply(fmt.Sprintf(oneUser, "next", "first"))
	s.unschedulable("next", "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
	c.kill(t)
	c.again(t)
	s.kubectl("delete", "pod", "early")
	s.placedOn("next", nodes[1])

	// A bound claim keeps its pod off all other nodes.
	s.kubectl("cordon", nodes[1])
	s.kubectl("delete", "pod", "next")
	s.apply(fmt.Sprintf(oneUser, "last", "first"))
	s.unschedulable("last", "2 node(s) didn't match PersistentVolume's node affinity")
	s.kubectl("uncordon", nodes[1])
	s.placedOn("last", nodes[1])
}

const devices = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: one}
spec:
  driver: gpu.example.com
  nodeName: %[1]s
  pool: {name: one, generation: 1, resourceSliceCount: 1}
  devices: [{name: big, attributes: {model: {string: big}}}, {name: small, attributes: {model: {string: small}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: other}
spec:
  driver: gpu.example.com
  nodeName: %[2]s
  pool: {name: other, generation: 1, resourceSliceCount: 1}
  devices: [{name: small, attributes: {model: {string: small}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: small}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "small"'}}]}}]}}}
`

const deviceUsers = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: users}
spec:
  replicas: 2
  selector: {matchLabels: {app: users}}
  template:
    metadata: {labels: {app: users}}
    spec:
      containers: [{name: c, image: any, resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: small}]
`

// TestDevices: each pod gets a device of its own, which is free again when the pod is gone, also over
// a crash.
func TestDevices(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "3")
	s := newSession(t, c)
	nodes := s.nodes()
	s.apply(fmt.Sprintf(devices, nodes[0], nodes[2]))
	s.apply(deviceUsers)
	s.rolledOut("users")
	var on []string
	for _, pod := range s.pods("app=users") {
		on = append(on, pod.Spec.NodeName)
	}
	if slices.Sort(on); !slices.Equal(on, []string{nodes[0], nodes[2]}) {
		t.Errorf("the pods are on %v", on)
	}
	s.prints("small small", "get", "resourceclaims", "-o", "jsonpath={.items[*].status.allocation.devices.results[*].device}")

	s.kubectl("scale", "deployment/users", "--replicas=3")
	var waiting string
	s.eventually("the third pod exists", func() error {
		for _, pod := range s.pods("app=users") {
			if pod.Status.Phase == corev1.PodPending {
				waiting = pod.Name
				return nil
			}
		}
		return fmt.Errorf("none is pending")
	})
	s.unschedulable(waiting, "3 cannot allocate all claims")
	c.kill(t)
	c.again(t)
	var gone string
	for _, pod := range s.pods("app=users") {
		if pod.Name != waiting && pod.Spec.NodeName == nodes[2] {
			gone = pod.Name
		}
	}
	s.kubectl("delete", "pod", gone)
	// The pod that waited backs off, so the replacement may be the first to find the device free.
	s.eventually("another pod runs on "+nodes[2], func() error {
		for _, pod := range s.pods("app=users") {
			if pod.Name != gone && pod.Spec.NodeName == nodes[2] && pod.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("none does")
	})
	s.kubectl("delete", "deployment", "users")
	s.noClaims()

	// A device satisfies a request for an extended resource that the node does not have.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: extended}
spec: {containers: [{name: c, image: any, resources: {requests: {example.com/gpu: "2"}, limits: {example.com/gpu: "2"}}}]}
`)
	s.placedOn("extended", nodes[0])
	claim := s.jsonpath("{.status.extendedResourceClaimStatus.resourceClaimName}", "pod", "extended")
	s.prints("big small", "get", "resourceclaim", claim, "-o", "jsonpath={.status.allocation.devices.results[*].device}")
	s.kubectl("delete", "pod", "extended")
	s.noClaims()
}

func (s *session) noClaims() {
	s.Helper()
	s.eventually("no claim is left", func() error {
		if left := s.kubectl("get", "resourceclaims", "-o", "name"); left != "" {
			return fmt.Errorf("%s", left)
		}
		return nil
	})
}
