// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but users still write them.

package endpointslicemirroring

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice/util"
	netutils "k8s.io/utils/net"
)

const (
	// managedBy is the value of the managed-by label of mirrored slices.
	managedBy = "endpointslicemirroring-controller.k8s.io"
	// capacity is the maximum number of addresses that are mirrored of a set of ports.
	capacity = 1000
)

// mirrored reports whether Endpoints are mirrored, if their Service has no selector.
func mirrored(endpoints metav1.Object) bool {
	_, elects := endpoints.GetAnnotations()[resourcelock.LeaderElectionRecordAnnotationKey]
	return !elects && endpoints.GetLabels()[discoveryv1.LabelSkipMirror] != "true"
}

// content is the content of Endpoints in the form of slices.
type content struct {
	slices []*discoveryv1.EndpointSlice
	// invalid is the number of addresses that are not IP addresses, excess of those over capacity.
	invalid, excess int
}

// mirror returns the content of Endpoints.
func mirror(endpoints *corev1.Endpoints) content {
	var out content
	for _, set := range portSets(endpoints.Subsets) {
		byFamily := map[discoveryv1.AddressType]*discoveryv1.EndpointSlice{}
		left := capacity
		for _, b := range set.backends {
			ip := netutils.ParseIPSloppy(b.address.IP)
			switch {
			case ip == nil:
				out.invalid++
				continue
			case left == 0:
				out.excess++
				continue
			}
			left--
			family := familyOf(ip)
			if byFamily[family] == nil {
				byFamily[family] = newSlice(endpoints, family, set.ports)
			}
			byFamily[family].Endpoints = append(byFamily[family].Endpoints, endpointOf(b, ip))
		}
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			if slice := byFamily[family]; slice != nil {
				out.slices = append(out.slices, slice)
			}
		}
	}
	return out
}

// backend is an address, and whether it is ready.
type backend struct {
	address corev1.EndpointAddress
	ready   bool
}

func (b backend) key() string {
	uid := ""
	if b.address.TargetRef != nil {
		uid = string(b.address.TargetRef.UID)
	}
	return b.address.IP + "/" + uid
}

// portSet is a set of ports, and the backends that have just these. Ready ones come first.
type portSet struct {
	ports    []corev1.EndpointPort
	backends []backend
}

// portSets regroups subsets, which may overlap: each port is in one set. A backend that is both
// ready and not ready on a port is not ready.
func portSets(subsets []corev1.EndpointSubset) []portSet {
	byPort, ports := map[string]map[string]backend{}, map[string][]corev1.EndpointPort{}
	add := func(name string, port []corev1.EndpointPort, addresses []corev1.EndpointAddress, ready bool) {
		if byPort[name] == nil {
			byPort[name], ports[name] = map[string]backend{}, port
		}
		for _, address := range addresses {
			b := backend{address, ready}
			if known, ok := byPort[name][b.key()]; ok && !known.ready {
				b.ready = false
			}
			byPort[name][b.key()] = b
		}
	}
	for _, subset := range subsets {
		if len(subset.Ports) == 0 {
			add("", nil, subset.Addresses, true)
			add("", nil, subset.NotReadyAddresses, false)
		}
		for _, port := range subset.Ports {
			name := nameOf(port)
			add(name, []corev1.EndpointPort{port}, subset.Addresses, true)
			add(name, []corev1.EndpointPort{port}, subset.NotReadyAddresses, false)
		}
	}
	sets := map[string]*portSet{}
	for _, name := range slices.Sorted(maps.Keys(byPort)) {
		backends := sortedBackends(byPort[name])
		var key strings.Builder
		if name == "" {
			key.WriteString("no port ")
		}
		for _, b := range backends {
			fmt.Fprintf(&key, "%s %t ", b.key(), b.ready)
		}
		if sets[key.String()] == nil {
			sets[key.String()] = &portSet{backends: backends}
		}
		set := sets[key.String()]
		set.ports = append(set.ports, ports[name]...)
	}
	var out []portSet
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		out = append(out, *sets[key])
	}
	return out
}

// nameOf identifies a port by all its fields, in an order by number.
func nameOf(p corev1.EndpointPort) string {
	protocol := ""
	if p.AppProtocol != nil {
		protocol = "/" + *p.AppProtocol
	}
	return fmt.Sprintf("%05d/%s/%s%s", p.Port, p.Protocol, p.Name, protocol)
}

func sortedBackends(all map[string]backend) []backend {
	return slices.SortedFunc(maps.Values(all), func(a, b backend) int {
		if a.ready != b.ready {
			if a.ready {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.key(), b.key())
	})
}

func familyOf(ip net.IP) discoveryv1.AddressType {
	if netutils.IsIPv6(ip) {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

func endpointOf(b backend, ip net.IP) discoveryv1.Endpoint {
	out := discoveryv1.Endpoint{
		Addresses:  []string{ip.String()}, // the user may have written it in another form
		Conditions: discoveryv1.EndpointConditions{Ready: &b.ready},
		TargetRef:  b.address.TargetRef,
		NodeName:   b.address.NodeName,
	}
	if b.address.Hostname != "" {
		out.Hostname = &b.address.Hostname
	}
	return out
}

// newSlice returns a slice without endpoints. It has the labels and annotations of the Endpoints.
func newSlice(endpoints *corev1.Endpoints, family discoveryv1.AddressType, ports []corev1.EndpointPort) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: endpoints.Namespace, GenerateName: endpoints.Name + "-",
			Labels:          map[string]string{},
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(endpoints, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
		},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{},
	}
	maps.Copy(slice.Labels, endpoints.Labels)
	slice.Labels[discoveryv1.LabelServiceName] = endpoints.Name
	slice.Labels[discoveryv1.LabelManagedBy] = managedBy
	maps.Copy(slice.Annotations, endpoints.Annotations)
	delete(slice.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(slice.Annotations, corev1.LastAppliedConfigAnnotation)
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return slice
}

// changes are the writes that make the existing slices the wanted ones.
type changes struct{ create, update, remove []*discoveryv1.EndpointSlice }

// plan returns the changes. A slice with other ports is changed rather than one created and one
// removed. The ports of a slice can be changed, its IP family cannot.
func plan(wanted, existing []*discoveryv1.EndpointSlice) changes {
	var out changes
	var unmatched []*discoveryv1.EndpointSlice
	left := slices.Clone(existing)
	take := func(matches func(*discoveryv1.EndpointSlice) bool) *discoveryv1.EndpointSlice {
		at := slices.IndexFunc(left, matches)
		if at < 0 {
			return nil
		}
		found := left[at]
		left = slices.Delete(left, at, at+1)
		return found
	}
	for _, slice := range wanted {
		found := take(func(e *discoveryv1.EndpointSlice) bool {
			return e.AddressType == slice.AddressType && util.NewPortMapKey(e.Ports) == util.NewPortMapKey(slice.Ports)
		})
		switch {
		case found == nil:
			unmatched = append(unmatched, slice)
		case !same(found, slice):
			out.update = append(out.update, changed(found, slice))
		}
	}
	for _, slice := range unmatched {
		if found := take(func(e *discoveryv1.EndpointSlice) bool { return e.AddressType == slice.AddressType }); found != nil {
			out.update = append(out.update, changed(found, slice))
			continue
		}
		out.create = append(out.create, slice)
	}
	out.remove = left
	return out
}
