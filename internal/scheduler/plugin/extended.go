// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// extendedResources are the requests of a pod for extended resources, of which at least one has a
// DeviceClass. On a node that has none of such a resource, devices satisfy the request (KEP-5004).
type extendedResources struct {
	pod     *v1.Pod
	amounts map[v1.ResourceName]int64
	classes map[v1.ResourceName]*resourcev1.DeviceClass
	// left is the claim of an earlier attempt, which must be deleted first.
	left *resourcev1.ResourceClaim
}

// extendedOf returns the extended resources of a pod; nil if no DeviceClass has one of them.
func extendedOf(devices *model.Devices, pod *model.Pod) *extendedResources {
	e := &extendedResources{pod: pod.Pod, amounts: map[v1.ResourceName]int64{}, classes: map[v1.ResourceName]*resourcev1.DeviceClass{}}
	for name, amount := range pod.Requests.Scalar {
		if amount == 0 || !model.IsExtendedResource(name) {
			continue
		}
		e.amounts[name] = amount
		if class := devices.ClassFor(name); class != nil {
			e.classes[name] = class
		}
	}
	if len(e.classes) == 0 {
		return nil
	}
	e.left = devices.ExtendedClaim(pod)
	return e
}

// isDevice reports whether devices satisfy the requests for a resource on a node.
func isDevice(devices *model.Devices, name v1.ResourceName, node *model.Node) bool {
	return node.Allocatable.Get(name) == 0 && model.IsExtendedResource(name) && devices.ClassFor(name) != nil
}

// claim returns the claim for the resources that devices satisfy on a node, and which of its requests
// each container uses; nil if there are none.
func (e *extendedResources) claim(node *model.Node) (*resourcev1.ResourceClaim, []v1.ContainerExtendedResourceRequest) {
	r := requestBuilder{containers: slices.Concat(e.pod.Spec.InitContainers, e.pod.Spec.Containers), inits: len(e.pod.Spec.InitContainers)}
	for _, name := range slices.Sorted(maps.Keys(e.classes)) {
		if node.Allocatable.Get(name) == 0 {
			r.add(name, e.classes[name].Name)
		}
	}
	if len(r.requests) == 0 {
		return nil, nil
	}
	slices.SortFunc(r.requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       e.pod.Namespace,
			GenerateName:    e.pod.Name + "-extended-resources-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: e.pod.Name, UID: e.pod.UID, Controller: ptr.To(true)}},
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: r.requests}},
	}, r.mappings
}

// requestBuilder collects the requests of containers. Init containers, which run before the others,
// use the devices of the containers after them, and share what they need beyond that.
type requestBuilder struct {
	containers []v1.Container
	inits      int
	requests   []resourcev1.DeviceRequest
	mappings   []v1.ContainerExtendedResourceRequest
}

func (r *requestBuilder) add(name v1.ResourceName, class string) {
	lasting := make([]*resourcev1.DeviceRequest, len(r.containers))
	for i := range r.containers {
		if !r.isBrief(i) {
			lasting[i] = r.request(i, name, class, nil)
		}
	}
	var most *resourcev1.DeviceRequest
	var shared []int // the mappings to requests of init containers
	for i := range r.containers {
		if !r.isBrief(i) {
			continue
		}
		own := r.request(i, name, class, lasting[i:])
		if own == nil {
			continue
		}
		shared = append(shared, len(r.mappings)-1)
		if most == nil || own.Exactly.Count > most.Exactly.Count {
			most = own
		}
	}
	for _, at := range shared {
		r.mappings[at].RequestName = most.Name
	}
	for _, request := range append(lasting, most) {
		if request != nil {
			r.requests = append(r.requests, *request)
		}
	}
}

// isBrief reports whether a container ends before the ones after it start.
func (r *requestBuilder) isBrief(i int) bool {
	policy := r.containers[i].RestartPolicy
	return i < r.inits && (policy == nil || *policy != v1.ContainerRestartPolicyAlways)
}

// request returns what a container needs of a resource beyond the requests of later containers, or nil.
// It adds a mapping for each request that the container uses.
func (r *requestBuilder) request(i int, name v1.ResourceName, class string, later []*resourcev1.DeviceRequest) *resourcev1.DeviceRequest {
	container := &r.containers[i]
	amount := container.Resources.Requests[name]
	need := amount.Value()
	for _, request := range later {
		if request == nil || need <= 0 {
			continue
		}
		need -= request.Exactly.Count
		r.use(container, name, request.Name)
	}
	if need <= 0 {
		return nil
	}
	index := slices.Index(slices.Sorted(maps.Keys(container.Resources.Requests)), name)
	request := &resourcev1.DeviceRequest{
		Name: fmt.Sprintf("container-%d-request-%d", i, index),
		Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: need,
		},
	}
	r.use(container, name, request.Name)
	return request
}

func (r *requestBuilder) use(container *v1.Container, name v1.ResourceName, request string) {
	r.mappings = append(r.mappings, v1.ContainerExtendedResourceRequest{
		ContainerName: container.Name, ResourceName: string(name), RequestName: request,
	})
}
