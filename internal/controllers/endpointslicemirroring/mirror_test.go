// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but users still write them.

package endpointslicemirroring

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// subset reads "80/http 443 a !b": ports, ready addresses and others.
func subset(t testing.TB, text string) corev1.EndpointSubset {
	t.Helper()
	var out corev1.EndpointSubset
	for _, word := range strings.Fields(text) {
		var number int32
		if n, err := fmt.Sscanf(word, "%d", &number); n == 1 && err == nil && !strings.ContainsAny(word, ".:") {
			_, name, _ := strings.Cut(word, "/")
			out.Ports = append(out.Ports, corev1.EndpointPort{Name: name, Port: number, Protocol: corev1.ProtocolTCP})
			continue
		}
		ip, notReady := strings.CutPrefix(word, "!")
		if notReady {
			out.NotReadyAddresses = append(out.NotReadyAddresses, corev1.EndpointAddress{IP: ip})
			continue
		}
		out.Addresses = append(out.Addresses, corev1.EndpointAddress{IP: ip})
	}
	return out
}

func newEndpoints(t testing.TB, subsets ...string) *corev1.Endpoints {
	out := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "endpoints"}}
	for _, s := range subsets {
		out.Subsets = append(out.Subsets, subset(t, s))
	}
	return out
}

// text writes a slice in the form that subset reads.
func text(slice *discoveryv1.EndpointSlice) string {
	var words []string
	for _, p := range slice.Ports {
		words = append(words, strings.TrimSuffix(fmt.Sprintf("%d/%s", *p.Port, *p.Name), "/"))
	}
	for _, e := range slice.Endpoints {
		if *e.Conditions.Ready {
			words = append(words, e.Addresses...)
			continue
		}
		words = append(words, "!"+e.Addresses[0])
	}
	return strings.Join(words, " ")
}

func texts(all []*discoveryv1.EndpointSlice) (out []string) {
	for _, slice := range all {
		out = append(out, text(slice))
	}
	slices.Sort(out)
	return out
}

func TestMirror(t *testing.T) {
	for name, test := range map[string]struct{ subsets, want []string }{
		"nothing":                        {nil, nil},
		"no addresses":                   {[]string{"80"}, nil},
		"ready and not":                  {[]string{"80/http 10.0.0.1 !10.0.0.2"}, []string{"80/http 10.0.0.1 !10.0.0.2"}},
		"two families":                   {[]string{"80 10.0.0.1 fd00::1"}, []string{"80 10.0.0.1", "80 fd00::1"}},
		"another form of an address":     {[]string{"80 010.000.000.001 FD00:0::1"}, []string{"80 10.0.0.1", "80 fd00::1"}},
		"no ports":                       {[]string{"10.0.0.1"}, []string{"10.0.0.1"}},
		"ports of the same addresses":    {[]string{"80 10.0.0.1", "443 10.0.0.1"}, []string{"80 443 10.0.0.1"}},
		"ports of different addresses":   {[]string{"80 443 10.0.0.1", "443 10.0.0.2"}, []string{"443 10.0.0.1 10.0.0.2", "80 10.0.0.1"}},
		"subsets that are equal":         {[]string{"80 10.0.0.1", "80 10.0.0.1"}, []string{"80 10.0.0.1"}},
		"once ready and once not":        {[]string{"80 10.0.0.1", "80 !10.0.0.1"}, []string{"80 !10.0.0.1"}},
		"once not ready and then ready":  {[]string{"80 !10.0.0.1", "80 10.0.0.1"}, []string{"80 !10.0.0.1"}},
		"addresses with and without one": {[]string{"10.0.0.1", "80 10.0.0.1"}, []string{"10.0.0.1", "80 10.0.0.1"}},
	} {
		got := mirror(newEndpoints(t, test.subsets...))
		if diff := cmp.Diff(test.want, texts(got.slices)); diff != "" || got.invalid != 0 || got.excess != 0 {
			t.Errorf("%s: %s, %d invalid, %d over", name, diff, got.invalid, got.excess)
		}
	}
}

func TestMirroredMetadata(t *testing.T) {
	endpoints := newEndpoints(t, "80 10.0.0.1")
	endpoints.Labels = map[string]string{"team": "a", discoveryv1.LabelManagedBy: "me"}
	endpoints.Annotations = map[string]string{"note": "b", corev1.EndpointsLastChangeTriggerTime: "now", corev1.LastAppliedConfigAnnotation: "{}"}
	address := &endpoints.Subsets[0].Addresses[0]
	address.Hostname, address.NodeName = "one", ptr.To("node")
	address.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "p", UID: types.UID("u")}
	slice := mirror(endpoints).slices[0]
	if diff := cmp.Diff(map[string]string{"team": "a", discoveryv1.LabelManagedBy: managedBy, discoveryv1.LabelServiceName: "web"}, slice.Labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"note": "b"}, slice.Annotations); diff != "" {
		t.Error(diff)
	}
	if !metav1.IsControlledBy(slice, endpoints) || slice.GenerateName != "web-" || slice.Namespace != "ns" {
		t.Errorf("%+v", slice.ObjectMeta)
	}
	if e := slice.Endpoints[0]; *e.Hostname != "one" || *e.NodeName != "node" || e.TargetRef != address.TargetRef {
		t.Errorf("%+v", e)
	}
}

func TestAddressesThatAreNotMirrored(t *testing.T) {
	endpoints := newEndpoints(t, "80 10.0.0.1 !10.0.0.2")
	endpoints.Subsets[0].Addresses = append(endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: "none"})
	if got := mirror(endpoints); got.invalid != 1 || got.excess != 0 || len(got.slices[0].Endpoints) != 2 {
		t.Errorf("%+v", got)
	}
	for i := range capacity {
		endpoints.Subsets[0].Addresses = append(endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.1.%d.%d", i/250, i%250)})
	}
	got := mirror(endpoints)
	ready := func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready }
	if got.invalid != 1 || got.excess != 2 || len(got.slices[0].Endpoints) != capacity || !slices.ContainsFunc(got.slices[0].Endpoints, ready) ||
		!ready(got.slices[0].Endpoints[capacity-1]) {
		t.Errorf("%d invalid, %d over, %d mirrored", got.invalid, got.excess, len(got.slices[0].Endpoints))
	}
}

func TestWhatIsMirrored(t *testing.T) {
	for name, test := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"plain":          {metav1.ObjectMeta{}, true},
		"skipped":        {metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}, false},
		"not skipped":    {metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelSkipMirror: "false"}}, true},
		"elects leaders": {metav1.ObjectMeta{Annotations: map[string]string{resourcelock.LeaderElectionRecordAnnotationKey: ""}}, false},
	} {
		if got := mirrored(&corev1.Endpoints{ObjectMeta: test.meta}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestPlan changes random slices to those of random Endpoints: afterwards they are equal, no slice
// changes its family, none is written without need, and there are no more writes than slices.
func TestPlan(t *testing.T) {
	for seed := range 2000 {
		random := rand.New(rand.NewSource(int64(seed)))
		existing := mirror(randomEndpoints(t, random)).slices
		for i, slice := range existing {
			slice.Name, slice.UID = fmt.Sprint("slice-", i), types.UID(fmt.Sprint(i))
		}
		if len(existing) > 0 && random.Intn(4) == 0 { // as after a race
			twin := existing[0].DeepCopy()
			twin.Name, twin.UID = "twin", "twin"
			existing = append(existing, twin)
		}
		wanted := mirror(randomEndpoints(t, random)).slices
		changes := plan(wanted, existing)

		state := map[types.UID]*discoveryv1.EndpointSlice{}
		for _, slice := range existing {
			state[slice.UID] = slice
		}
		for _, slice := range changes.update {
			before := state[slice.UID]
			if before == nil || before.AddressType != slice.AddressType || text(before) == text(slice) {
				t.Fatalf("seed %d: %v becomes %v", seed, before, slice)
			}
			state[slice.UID] = slice
		}
		for _, slice := range changes.remove {
			delete(state, slice.UID)
		}
		for i, slice := range changes.create {
			state[types.UID(fmt.Sprint("new-", i))] = slice
		}
		var got []*discoveryv1.EndpointSlice
		for _, slice := range state {
			got = append(got, slice)
		}
		if diff := cmp.Diff(texts(wanted), texts(got)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		if writes := len(changes.create) + len(changes.update) + len(changes.remove); writes > max(len(existing), len(wanted))+2 {
			t.Errorf("seed %d: %d writes for %d and %d slices", seed, writes, len(existing), len(wanted))
		}
	}
}

func randomEndpoints(t testing.TB, random *rand.Rand) *corev1.Endpoints {
	var subsets []string
	for range random.Intn(4) {
		text := ""
		for range random.Intn(3) {
			text += fmt.Sprintf("%d ", 80+random.Intn(3))
		}
		for range random.Intn(4) {
			text += []string{"", "!"}[random.Intn(2)] + []string{"10.0.0.", "fd00::"}[random.Intn(2)] + fmt.Sprint(1+random.Intn(4)) + " "
		}
		subsets = append(subsets, text)
	}
	return newEndpoints(t, subsets...)
}
