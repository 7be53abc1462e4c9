// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but still served to those who read them.

package apiserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/registry/serviceip"
	"github.com/kindred-project/kindred/internal/storage"
)

// running is a server with the objects that every cluster has.
type running struct {
	*testing.T
	*Server
	kubernetes.Interface
	backend *storage.Backend
	stop    func()
}

// startServer starts a server on a directory, which an earlier server may have used.
func startServer(t *testing.T, dir string, port int, services string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	backend, err := storage.Embedded(ctx, filepath.Join(dir, "etcd"), clock.RealClock{}, storage.DefaultRetention)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pki.Open(filepath.Join(dir, "pki"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Backend: backend, PKI: keys, Listener: listener, Names: pki.Names{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
		AdvertiseAddress: net.IPv4(192, 0, 2, 1), AdvertisePort: port, ServiceCIDRs: prefixes(services), Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.Config(apiserverUser))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := &running{T: t, Server: s, Interface: client, backend: backend, stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		backend.Close()
	})}
	t.Cleanup(r.stop)
	r.must(within(30*time.Second, func() error { return s.EnsureSystem(ctx) }))
	return r
}

// prefixes parses ranges that are separated by commas.
func prefixes(s string) []netip.Prefix {
	var all []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		all = append(all, netip.MustParsePrefix(part))
	}
	return all
}

func (r *running) claims() map[string]string {
	r.Helper()
	all, err := r.NetworkingV1().IPAddresses().List(context.Background(), metav1.ListOptions{})
	r.must(err)
	owners := map[string]string{}
	for _, claim := range all.Items {
		owners[claim.Name] = claim.Spec.ParentRef.Namespace + "/" + claim.Spec.ParentRef.Name
	}
	return owners
}

// isFree reports whether a node port can be claimed, without claiming it.
func (r *running) isFree(port int32) bool {
	_, err := r.services.Ports.Claim([]int32{port}, true)
	return err == nil
}

func (r *running) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *running) patch(name, change string) (*corev1.Service, error) {
	return r.CoreV1().Services("default").Patch(context.Background(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
}

func newTestService(name string, kind corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: kind, Ports: ports}}
}

func TestServices(t *testing.T) {
	ctx := context.Background()
	r := startServer(t, t.TempDir(), 6443, "10.96.0.0/24")
	services := r.CoreV1().Services("default")
	create := func(s *corev1.Service) *corev1.Service {
		t.Helper()
		created, err := services.Create(ctx, s, metav1.CreateOptions{})
		r.must(err)
		return created
	}
	refused := func(err error, part string) {
		t.Helper()
		if err == nil || !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want a refusal with %q", err, part)
		}
	}
	owns := func(name string, ips ...string) {
		t.Helper()
		var got []string
		for ip, owner := range r.claims() {
			if owner == "default/"+name {
				got = append(got, ip)
			}
		}
		if diff := cmp.Diff(ips, got); diff != "" {
			t.Errorf("%s owns (-want +got):\n%s", name, diff)
		}
	}

	web := create(newTestService("web", corev1.ServiceTypeNodePort, corev1.ServicePort{Port: 53}))
	ip, port := web.Spec.ClusterIP, web.Spec.Ports[0].NodePort
	owns("web", ip)
	if r.isFree(port) || !slices.Equal(web.Spec.ClusterIPs, []string{ip}) || *web.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		t.Errorf("allocated port %d, addresses %v, policy %s", port, web.Spec.ClusterIPs, *web.Spec.IPFamilyPolicy)
	}

	// Neither the address nor the port can be claimed again, and a refused Service claims nothing.
	other := newTestService("other", corev1.ServiceTypeNodePort, corev1.ServicePort{Port: 80, NodePort: port})
	_, err := services.Create(ctx, other, metav1.CreateOptions{})
	refused(err, fmt.Sprintf("spec.ports[0].nodePort: Invalid value: %d: provided port is already allocated", port))
	other = newTestService("other", corev1.ServiceTypeNodePort, corev1.ServicePort{Port: 80, NodePort: 30001})
	other.Spec.ClusterIP = ip
	_, err = services.Create(ctx, other, metav1.CreateOptions{})
	refused(err, fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", ip))
	other.Spec.ClusterIP, other.Spec.SessionAffinity = "", "Magic"
	_, err = services.Create(ctx, other, metav1.CreateOptions{})
	refused(err, "spec.sessionAffinity")
	_, err = services.Create(ctx, newTestService("web", corev1.ServiceTypeNodePort, corev1.ServicePort{Port: 80, NodePort: 30001}), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Error(err)
	}
	_, err = services.Create(ctx, newTestService("dry", corev1.ServiceTypeNodePort, corev1.ServicePort{Port: 80, NodePort: 30001}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	r.must(err)
	_, err = r.patch("web", `{"spec":{"clusterIP":"10.96.0.9"}}`)
	refused(err, "spec.clusterIPs[0]: Invalid value: [\"10.96.0.9\"]: may not change once set")
	if n := len(r.claims()); n != 2 || !r.isFree(30001) {
		t.Errorf("%d addresses are claimed, 30001 is free: %v", n, r.isFree(30001))
	}

	// A Service whose type changes releases what it no longer needs, and gets what it needs.
	changed, err := r.patch("web", `{"spec":{"type":"ClusterIP"}}`)
	r.must(err)
	if changed.Spec.ClusterIP != ip || changed.Spec.Ports[0].NodePort != 0 || !r.isFree(port) {
		t.Errorf("as ClusterIP: %s, port %d", changed.Spec.ClusterIP, changed.Spec.Ports[0].NodePort)
	}
	changed, err = r.patch("web", `{"spec":{"type":"ExternalName","externalName":"db.example.com"}}`)
	r.must(err)
	owns("web")
	if changed.Spec.ClusterIP != "" || changed.Spec.ClusterIPs != nil || changed.Spec.InternalTrafficPolicy != nil {
		t.Errorf("as ExternalName: %v", changed.Spec)
	}
	changed, err = r.patch("web", `{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local","externalName":null}}`)
	r.must(err)
	owns("web", changed.Spec.ClusterIP)
	port, health := changed.Spec.Ports[0].NodePort, changed.Spec.HealthCheckNodePort
	if r.isFree(port) || r.isFree(health) || port == health {
		t.Errorf("as LoadBalancer: ports %d, %d", port, health)
	}
	// A PUT of the original manifest keeps the allocated values.
	again := newTestService("web", corev1.ServiceTypeLoadBalancer, corev1.ServicePort{Port: 53})
	again.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	put, err := services.Update(ctx, again, metav1.UpdateOptions{})
	r.must(err)
	if put.ResourceVersion != changed.ResourceVersion {
		t.Errorf("changed by a PUT of its own manifest: %v", cmp.Diff(changed.Spec, put.Spec))
	}

	// With a finalizer, everything stays claimed until the last finalizer is removed.
	_, err = r.patch("web", `{"metadata":{"finalizers":["example.com/x"]}}`)
	r.must(err)
	r.must(services.Delete(ctx, "web", metav1.DeleteOptions{}))
	if r.isFree(port) {
		t.Error("a port of an existing Service was released")
	}
	_, err = r.patch("web", `{"metadata":{"finalizers":null}}`)
	r.must(err)
	owns("web")
	if !r.isFree(port) || !r.isFree(health) {
		t.Error("ports of a deleted Service are still claimed")
	}

	// Headless Services have no address, and may have any IP families.
	head := newTestService("head", corev1.ServiceTypeClusterIP)
	head.Spec.ClusterIP = corev1.ClusterIPNone
	if got := create(head); len(got.Spec.IPFamilies) != 2 || *got.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyRequireDualStack {
		t.Errorf("headless: %v", got.Spec.IPFamilies)
	}
	owns("head")

	found, err := services.List(ctx, metav1.ListOptions{FieldSelector: "spec.clusterIP=None,spec.type=ClusterIP"})
	r.must(err)
	if len(found.Items) != 1 || found.Items[0].Name != "head" {
		t.Errorf("selected %d", len(found.Items))
	}
	var gone corev1.Service
	r.must(r.CoreV1().RESTClient().Delete().Namespace("default").Resource("services").Name("head").Do(ctx).Into(&gone))
	if gone.Name != "head" {
		t.Error("a deletion does not return the Service")
	}
}

// TestNoTwoServicesShare: many clients create, change and delete Services in a range that is too
// small for all of them, with random or equal addresses and ports. At no time do two Services have
// the same one. At the end exactly the used ones are claimed.
func TestNoTwoServicesShare(t *testing.T) {
	ctx := context.Background()
	r := startServer(t, t.TempDir(), 6443, "10.96.0.0/27")
	services := r.CoreV1().Services("default")
	check := func() {
		t.Helper()
		all, err := services.List(ctx, metav1.ListOptions{})
		r.must(err)
		ips, ports := map[string]string{}, map[int32]string{}
		for _, s := range all.Items {
			if ip := s.Spec.ClusterIP; ip != "" {
				if other, twice := ips[ip]; twice {
					t.Errorf("%s is used by %s and %s", ip, other, s.Name)
				}
				ips[ip] = s.Name
			}
			for _, p := range s.Spec.Ports {
				if other, twice := ports[p.NodePort]; twice && p.NodePort != 0 {
					t.Errorf("%d is used by %s and %s", p.NodePort, other, s.Name)
				}
				ports[p.NodePort] = s.Name
			}
		}
	}
	var group sync.WaitGroup
	for client := range 8 {
		random := rand.New(rand.NewPCG(uint64(client), 11))
		group.Go(func() {
			for range 25 {
				// Clients also share names, so that they conflict.
				name := fmt.Sprint("s-", random.IntN(12))
				var err error
				switch random.IntN(5) {
				case 0:
					err = services.Delete(ctx, name, metav1.DeleteOptions{})
				case 1:
					_, err = r.patch(name, `{"spec":{"type":"ExternalName","externalName":"a.example.com"}}`)
				case 2:
					_, err = r.patch(name, `{"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
				default:
					s := newTestService(name, corev1.ServiceTypeNodePort, corev1.ServicePort{Port: 80})
					if random.IntN(2) == 0 {
						s.Spec.ClusterIP = fmt.Sprint("10.96.0.", 2+random.IntN(4))
						s.Spec.Ports[0].NodePort = 30000 + random.Int32N(4)
					}
					_, err = services.Create(ctx, s, metav1.CreateOptions{})
				}
				if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
					t.Error(err)
				}
			}
		})
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for range 20 {
			check()
			time.Sleep(10 * time.Millisecond)
		}
	}()
	group.Wait()
	<-watching
	check()

	all, err := services.List(ctx, metav1.ListOptions{})
	r.must(err)
	want, ports := map[string]string{}, sets.New[int32]()
	for _, s := range all.Items {
		if s.Spec.ClusterIP != "" {
			want[s.Spec.ClusterIP] = "default/" + s.Name
		}
		for _, p := range s.Spec.Ports {
			ports.Insert(p.NodePort)
		}
	}
	if diff := cmp.Diff(want, r.claims()); diff != "" {
		t.Errorf("claims (-used +claimed):\n%s", diff)
	}
	for port := int32(30000); port <= 32767; port++ {
		if r.isFree(port) == ports.Has(port) {
			t.Errorf("port %d is used: %v, and free: %v", port, ports.Has(port), r.isFree(port))
		}
	}
	for _, s := range all.Items {
		r.must(services.Delete(ctx, s.Name, metav1.DeleteOptions{}))
	}
	if left := r.claims(); len(left) != 0 {
		t.Errorf("remaining claims: %v", left)
	}
}

// TestClaimsAreRepairedAtTheStart: the start releases what a crashed server has claimed and not
// used, and claims what Services use.
func TestClaimsAreRepairedAtTheStart(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	r := startServer(t, dir, 6443, "10.96.0.0/24")
	web, err := r.CoreV1().Services("default").Create(ctx, newTestService("web", corev1.ServiceTypeNodePort, corev1.ServicePort{Port: 80}), metav1.CreateOptions{})
	r.must(err)
	lost := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost"}}
	address, err := r.services.Addresses.ClaimAny(lost, corev1.IPv4Protocol, false)
	r.must(err)
	ports, err := r.services.Ports.Claim([]int32{0}, false)
	r.must(err)
	// Only now: else the lost Service could get the address or the port of the other one.
	r.must(r.NetworkingV1().IPAddresses().Delete(ctx, web.Spec.ClusterIP, metav1.DeleteOptions{}))
	r.must(r.services.Ports.Release(web.Spec.Ports[0].NodePort))
	r.stop()

	r = startServer(t, dir, 6443, "10.96.0.0/24")
	if diff := cmp.Diff(map[string]string{"10.96.0.1": "default/kubernetes", web.Spec.ClusterIP: "default/web"}, r.claims()); diff != "" {
		t.Errorf("%s was lost; claims (-want +got):\n%s", address, diff)
	}
	// The Services get events.
	want := map[string]string{
		"ClusterIPNotAllocated": serviceip.AddressReporter + " Service default/web", "PortNotAllocated": serviceip.PortReporter + " Service default/web",
		"IPAddressNotAllocated": serviceip.AddressReporter + " IPAddress /" + address.String(),
	}
	err = within(10*time.Second, func() error {
		all, err := r.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, e := range all.Items {
			got[e.Reason] = e.ReportingController + " " + e.Regarding.Kind + " " + e.Regarding.Namespace + "/" + e.Regarding.Name
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("events (-want +got):\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if !r.isFree(ports[0]) || r.isFree(web.Spec.Ports[0].NodePort) {
		t.Error("node ports were not repaired")
	}
}

// TestPeers: servers on one store add themselves to the kubernetes Service, and remove themselves.
func TestPeers(t *testing.T) {
	ctx := context.Background()
	r := startServer(t, t.TempDir(), 6443, "10.96.0.0/24")
	resources, err := coreResources(r.backend)
	r.must(err)
	peer := func(address string) *kubernetesService {
		p, err := openPeers(resources)
		r.must(err)
		return &kubernetesService{client: r.Interface, ranges: prefixes("10.96.0.0/24"), address: net.ParseIP(address), port: 6443, peers: p}
	}
	look := func(want ...string) {
		t.Helper()
		slice, err := r.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		r.must(err)
		var got []string
		for _, e := range slice.Endpoints {
			got = append(got, e.Addresses...)
		}
		endpoints, err := r.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		r.must(err)
		var older []string
		for _, subset := range endpoints.Subsets {
			for _, a := range subset.Addresses {
				older = append(older, a.IP)
			}
		}
		if !slices.Equal(got, want) || !slices.Equal(older, want) {
			t.Errorf("EndpointSlice %v, Endpoints %v, want %v", got, older, want)
		}
	}
	a, b := peer("192.0.2.8"), peer("192.0.2.9")
	r.must(b.ensure(ctx))
	look("192.0.2.9")
	r.must(a.ensure(ctx))
	look("192.0.2.8", "192.0.2.9")
	before, err := r.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	r.must(err)
	for range 3 { // each server accepts what the other one wrote
		r.must(b.ensure(ctx))
		r.must(a.ensure(ctx))
	}
	after, err := r.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	r.must(err)
	if before.ResourceVersion != after.ResourceVersion {
		t.Error("the servers overwrite each other's changes")
	}
	r.must(a.leave())
	look("192.0.2.9")
	r.must(b.leave())
	look()
}

// TestTheDefaultRange: the range that the server was started with exists and is ready before the
// first request. It stays when the next start has another range.
func TestTheDefaultRange(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	look := func(r *running) {
		t.Helper()
		found, err := r.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
		r.must(err)
		if c := found.Status.Conditions; !slices.Equal(found.Spec.CIDRs, []string{"10.96.0.0/24"}) || len(c) != 1 ||
			c[0].Type != networkingv1.ServiceCIDRConditionReady || c[0].Status != metav1.ConditionTrue {
			t.Errorf("%v, %v", found.Spec.CIDRs, c)
		}
	}
	r := startServer(t, dir, 6443, "10.96.0.0/24")
	look(r)
	r.stop()
	look(startServer(t, dir, 6443, "10.97.0.0/24"))
}
