// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/deviceplugin"
	"github.com/kindred-project/kindred/internal/node/pod"
)

// The documented limits of a Node's image list.
const (
	maxImageNames = 5
)

const reasonNotReady = "KubeletNotReady"

// reporter computes the Node's status.
type reporter struct {
	options Options
	machine machine
	runtime cri.RuntimeService
	images  cri.ImageManagerService
	version *runtimeapi.VersionResponse
	// devices returns the number of devices of each resource that a device plugin registered.
	devices func() map[string]deviceplugin.Count
	// inUse returns the volumes that must stay attached to the node.
	inUse func() []v1.UniqueVolumeName
	// shutdown returns why the node is not ready: an imminent shutdown, or nil.
	shutdown func() error
	// pressure returns which of the conditions of pressure hold.
	pressure func() []v1.NodeConditionType
}

// status computes the status from the machine and the runtime. The transition times of unchanged
// conditions and the fields of other clients come from old.
func (r *reporter) status(ctx context.Context, old *v1.NodeStatus, now time.Time) v1.NodeStatus {
	s := *old.DeepCopy()
	s.Capacity, s.Allocatable = r.machine.capacity(r.options.Config)
	for name, count := range r.devices() {
		s.Capacity[v1.ResourceName(name)] = *resource.NewQuantity(int64(count.Capacity), resource.DecimalSI)
		s.Allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(count.Allocatable), resource.DecimalSI)
	}
	keepExtended(s.Capacity, old.Capacity)
	keepExtended(s.Allocatable, old.Allocatable)
	s.Addresses = r.addresses()
	s.NodeInfo = r.info()
	s.DaemonEndpoints.KubeletEndpoint.Port = r.options.ServePort
	s.Images = r.imageList(ctx)
	s.VolumesInUse = r.inUse()
	runtimeStatus, err := r.runtime.Status(ctx, false)
	r.features(&s, runtimeStatus)
	s.Conditions = r.conditions(old.Conditions, errors.Join(readyProblem(runtimeStatus, err), r.shutdown()), now)
	return s
}

// keepExtended keeps the extended resources of old, which other clients set on the Node.
func keepExtended(list, old v1.ResourceList) {
	for name, quantity := range old {
		if _, own := list[name]; !own && strings.Contains(string(name), "/") {
			list[name] = quantity
		}
	}
}

func (r *reporter) addresses() []v1.NodeAddress {
	var addresses []v1.NodeAddress
	for _, ip := range r.options.IPs {
		addresses = append(addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	if r.options.ExternalIPs != nil {
		for _, ip := range r.options.ExternalIPs() {
			if !slices.Contains(r.options.IPs, ip) {
				addresses = append(addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: ip})
			}
		}
	}
	return append(addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: r.options.Name})
}

func (r *reporter) info() v1.NodeSystemInfo {
	info := v1.NodeSystemInfo{
		MachineID:               r.machine.machineID,
		SystemUUID:              r.machine.systemUUID,
		BootID:                  r.machine.bootID,
		KernelVersion:           r.machine.kernel,
		OSImage:                 r.machine.osImage,
		ContainerRuntimeVersion: fmt.Sprintf("%s://%s", r.version.RuntimeName, r.version.RuntimeVersion),
		KubeletVersion:          r.options.Version,
		OperatingSystem:         goruntime.GOOS,
		Architecture:            goruntime.GOARCH,
	}
	if swap := r.machine.swap; swap > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	return info
}

// imageList returns the largest images.
func (r *reporter) imageList(ctx context.Context) []v1.ContainerImage {
	images, err := r.images.ListImages(ctx, nil)
	if err != nil {
		return nil
	}
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Id, b.Id))
	})
	var list []v1.ContainerImage
	limit := len(images)
	if most := int(*r.options.Config.NodeStatusMaxImages); most >= 0 { // -1 means all
		limit = min(limit, most)
	}
	for _, image := range images[:limit] {
		names := slices.Concat(image.RepoDigests, image.RepoTags)
		list = append(list, v1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: int64(image.Size)})
	}
	return list
}

func (r *reporter) features(s *v1.NodeStatus, status *runtimeapi.StatusResponse) {
	groups := status.GetFeatures().GetSupplementalGroupsPolicy()
	s.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	s.DeclaredFeatures = pod.DeclaredFeatures()
	s.RuntimeHandlers = nil
	for _, h := range status.GetRuntimeHandlers() {
		readOnly, userns := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		s.RuntimeHandlers = append(s.RuntimeHandlers, v1.NodeRuntimeHandler{
			Name:     h.Name,
			Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly, UserNamespaces: &userns},
		})
	}
}

// readyProblem returns why the node cannot run pods, or nil.
func readyProblem(status *runtimeapi.StatusResponse, err error) error {
	if err != nil {
		return fmt.Errorf("container runtime is down: %w", err)
	}
	return errors.Join(
		checkCondition(status, runtimeapi.RuntimeReady, "container runtime not ready"),
		checkCondition(status, runtimeapi.NetworkReady, "container runtime network not ready"),
	)
}

// checkCondition returns an error if a condition that CRI requires is not true. Other conditions are specific
// to the runtime: one of containerd's warns of deprecations.
func checkCondition(status *runtimeapi.StatusResponse, condition, problem string) error {
	for _, c := range status.GetStatus().GetConditions() {
		switch {
		case c.Type != condition:
		case c.Status:
			return nil
		default:
			return fmt.Errorf("%s: %s=%t reason:%s message:%s", problem, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return fmt.Errorf("%s: the runtime does not report %s", problem, condition)
}

// conditions computes the agent's four conditions. Ready is the last, as clients expect.
func (r *reporter) conditions(old []v1.NodeCondition, problem error, now time.Time) []v1.NodeCondition {
	under := r.pressure()
	own := []v1.NodeCondition{
		pressure(v1.NodeMemoryPressure, under,
			"KubeletHasInsufficientMemory", "kubelet has insufficient memory available",
			"KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		pressure(v1.NodeDiskPressure, under,
			"KubeletHasDiskPressure", "kubelet has disk pressure",
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		pressure(v1.NodePIDPressure, under,
			"KubeletHasInsufficientPID", "kubelet has insufficient PID available",
			"KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	if problem != nil {
		ready := &own[len(own)-1]
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, reasonNotReady, problem.Error()
	}
	var conditions []v1.NodeCondition
	for _, c := range old {
		if conditionIn(own, c.Type) == nil {
			conditions = append(conditions, c)
		}
	}
	for _, c := range own {
		c.LastHeartbeatTime = metav1.NewTime(now).Rfc3339Copy()
		c.LastTransitionTime = c.LastHeartbeatTime
		if before := conditionIn(old, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
		conditions = append(conditions, c)
	}
	return conditions
}

func pressure(t v1.NodeConditionType, under []v1.NodeConditionType, reason, message, okReason, okMessage string) v1.NodeCondition {
	if slices.Contains(under, t) {
		return v1.NodeCondition{Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message}
	}
	return v1.NodeCondition{Type: t, Status: v1.ConditionFalse, Reason: okReason, Message: okMessage}
}

func conditionIn(list []v1.NodeCondition, t v1.NodeConditionType) *v1.NodeCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// eventFor returns the reason of the event about a condition's new status.
func eventFor(c v1.NodeCondition) string {
	if c.Type == v1.NodeReady {
		if c.Status == v1.ConditionTrue {
			return "NodeReady"
		}
		return "NodeNotReady"
	}
	return "Node" + strings.TrimPrefix(c.Reason, "Kubelet")
}
