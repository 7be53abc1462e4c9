// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/clock"
)

// deviceClaims counts devices by class, under each name that a quota may use:
// gpu.deviceclass.resource.k8s.io/devices, and the names of the class's extended resources
// (KEP-5004), requests.deviceclass.resource.kubernetes.io/gpu and requests.example.com/gpu.
func deviceClaims(list generic.ListFuncByNamespace, d devices) quota.Evaluator {
	return &evaluator[*resourcev1.ResourceClaim]{
		counted: resourcev1.Resource("resourceclaims"), list: list,
		handles: createdOrUpdated,
		counts:  d.counts,
		usage:   d.usage,
	}
}

// Reader reads rare kinds from the server's watch caches, and only if a quota names them, so
// that no informer is needed.
type Reader interface {
	DeviceClasses() ([]resourcev1.DeviceClass, error)
	ResourceClaims(namespace string) ([]resourcev1.ResourceClaim, error)
	Pod(namespace, name string) (*corev1.Pod, error)
}

// FromCache is the resource version for reading from the server's watch cache.
const FromCache = "0"

type devices struct {
	reader Reader
	clock  clock.PassiveClock
}

func (d devices) classes() ([]resourcev1.DeviceClass, error) {
	classes, err := d.reader.DeviceClasses()
	if err != nil {
		return nil, fmt.Errorf("list classes of devices: %w", err)
	}
	return classes, nil
}

// counts reports whether a name in a quota means a class. On an error it returns true, since the
// usage will return the error.
func (d devices) counts(name corev1.ResourceName) bool {
	if strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
		return true
	}
	if !isRequestOfExtended(name) {
		return false
	}
	classes, err := d.classes()
	return err != nil || slices.ContainsFunc(classes, func(class resourcev1.DeviceClass) bool {
		return slices.Contains(requestNames(class.Name, classes), name)
	})
}

// requestNames returns the names of the extended resources of a class.
func requestNames(class string, classes []resourcev1.DeviceClass) []corev1.ResourceName {
	names := []corev1.ResourceName{corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass + class)}
	for i := range classes {
		if extended := classes[i].Spec.ExtendedResourceName; classes[i].Name == class && extended != nil {
			names = append(names, requests+corev1.ResourceName(*extended))
		}
	}
	return names
}

func (d devices) usage(c *resourcev1.ResourceClaim) (corev1.ResourceList, error) {
	byClass := devicesByClass(&c.Spec.Devices)
	used := corev1.ResourceList{}
	if len(byClass) == 0 {
		return used, nil
	}
	classes, err := d.classes()
	if err != nil {
		return nil, err
	}
	ofPod, err := d.countedWithPod(c)
	if err != nil {
		return nil, err
	}
	extended := corev1.ResourceList{}
	for class, n := range byClass {
		amount := *resource.NewQuantity(n, resource.DecimalSI)
		used[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = amount
		for _, name := range requestNames(class, classes) {
			sum := extended[name]
			sum.Add(amount)
			extended[name] = sum
		}
	}
	for name, amount := range extended {
		amount.Sub(ofPod[name])
		if amount.Sign() > 0 {
			used[name] = amount
		}
	}
	return used, nil
}

// devicesByClass returns the most devices that a claim may get of each class.
func devicesByClass(claim *resourcev1.DeviceClaim) map[string]int64 {
	most := map[string]int64{}
	for _, request := range claim.Requests {
		if request.Exactly != nil && len(request.FirstAvailable) == 0 {
			most[request.Exactly.DeviceClassName] += mostDevices(request.Exactly.AllocationMode, request.Exactly.Count)
		}
		// A claim gets one of the alternatives.
		ofOne := map[string]int64{}
		for _, a := range request.FirstAvailable {
			ofOne[a.DeviceClassName] = max(ofOne[a.DeviceClassName], mostDevices(a.AllocationMode, a.Count))
		}
		for class, n := range ofOne {
			most[class] += n
		}
	}
	return most
}

func mostDevices(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	if mode == resourcev1.DeviceAllocationModeAll {
		return resourcev1.AllocationResultsMaxSize
	}
	return count
}

// countedWithPod returns the usage of the pod for whose extended resources the scheduler created
// the claim. It must not be counted twice.
func (d devices) countedWithPod(c *resourcev1.ResourceClaim) (corev1.ResourceList, error) {
	owner := podOwner(c)
	if owner == nil {
		return nil, nil
	}
	pod, err := d.reader.Pod(c.Namespace, owner.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the pod of the claim: %w", err)
	}
	made, err := d.isMadeFor(c, pod)
	if err != nil || !made || pod.UID != owner.UID {
		return nil, err
	}
	return podUsage(pod, d.clock), nil
}

// podOwner returns the pod for whose extended resources a claim was created, as it states.
func podOwner(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return nil
	}
	return owner
}

// isMadeFor reports whether a claim was created for the pod. The pod's status names the claim;
// before that, it is the oldest one.
func (d devices) isMadeFor(c *resourcev1.ResourceClaim, pod *corev1.Pod) (bool, error) {
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		return status.ResourceClaimName == c.Name, nil
	}
	claims, err := d.reader.ResourceClaims(c.Namespace)
	if err != nil {
		return false, fmt.Errorf("list the claims of the pod: %w", err)
	}
	for i := range claims {
		other := &claims[i]
		if owner := podOwner(other); owner != nil && owner.UID == pod.UID && isBefore(other, c) {
			return false, nil
		}
	}
	return true, nil
}

func isBefore(c, other *resourcev1.ResourceClaim) bool {
	at, than := c.CreationTimestamp, other.CreationTimestamp
	return at.Before(&than) || at.Equal(&than) && c.Name < other.Name
}
