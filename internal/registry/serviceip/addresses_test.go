// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func serviceRange(name, cidr string, ready metav1.ConditionStatus) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}},
		Status:     networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: ready}}},
	}
}

func service(name string, ips ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIPs: ips}}
}

// newAddresses returns Addresses with empty listers: the answers of the API must suffice.
func newAddresses(objects ...runtime.Object) (*Addresses, *fake.Clientset) {
	client := fake.NewClientset(objects...)
	return NewAddresses(client.NetworkingV1(), informers.NewSharedInformerFactory(client, 0).Networking().V1()), client
}

func TestClaim(t *testing.T) {
	going := serviceRange("going", "10.3.0.0/24", metav1.ConditionTrue)
	going.DeletionTimestamp = &metav1.Time{}
	*going.DeletionTimestamp = metav1.Now()
	a, _ := newAddresses(serviceRange("a", "10.1.0.0/24", metav1.ConditionTrue), serviceRange("b", "10.2.0.0/24", metav1.ConditionFalse), going)
	if err := a.Claim(service("first"), netip.MustParseAddr("10.1.0.7"), false); err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]error{
		"10.1.0.7":   ErrAddressClaimed,
		"10.1.0.0":   ErrOutsideOfRanges, // network address
		"10.1.0.255": ErrOutsideOfRanges, // broadcast
		"10.2.0.7":   ErrOutsideOfRanges, // not ready
		"10.3.0.7":   ErrOutsideOfRanges, // being deleted
		"10.4.0.7":   ErrOutsideOfRanges,
		"fd00::7":    ErrOutsideOfRanges,
	} {
		if err := a.Claim(service("second"), netip.MustParseAddr(ip), false); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", ip, err, want)
		}
	}
	if _, err := a.ClaimAny(service("second"), corev1.IPv6Protocol, false); !errors.Is(err, ErrFull) {
		t.Errorf("an address of a family without range: %v", err)
	}
}

func TestDryRunClaimsNothing(t *testing.T) {
	a, client := newAddresses(serviceRange("a", "10.1.0.0/24", metav1.ConditionTrue))
	address, err := a.ClaimAny(service("s"), corev1.IPv4Protocol, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Claim(service("s"), address, true); err != nil {
		t.Error(err)
	}
	if n := claims(t, client); n != 0 {
		t.Errorf("%d claims", n)
	}
}

func TestOnlyTheOwnerReleases(t *testing.T) {
	a, client := newAddresses(serviceRange("a", "10.1.0.0/24", metav1.ConditionTrue))
	address := netip.MustParseAddr("10.1.0.7")
	if err := a.Claim(service("owner"), address, false); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		who  string
		left int
	}{{"other", 1}, {"owner", 0}, {"owner", 0}} {
		if err := a.Release(service(step.who), address); err != nil {
			t.Fatal(err)
		}
		if n := claims(t, client); n != step.left {
			t.Errorf("%d claims after %s released, want %d", n, step.who, step.left)
		}
	}
}

func claims(t *testing.T, client *fake.Clientset) int {
	t.Helper()
	all, err := client.NetworkingV1().IPAddresses().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Items)
}

// TestNoAddressTwice checks that several servers, whose listers do not show each other's claims,
// allocate all addresses of a range, each only once, and that released addresses can be allocated
// again.
func TestNoAddressTwice(t *testing.T) {
	const cidr, size = "10.1.0.0/27", 30
	_, client := newAddresses(serviceRange("a", cidr, metav1.ConditionTrue))
	var mu sync.Mutex
	owners := map[netip.Addr]string{}
	var group sync.WaitGroup
	for server := range 4 {
		a := NewAddresses(client.NetworkingV1(), informers.NewSharedInformerFactory(client, 0).Networking().V1())
		random := rand.New(rand.NewPCG(uint64(server), 7))
		a.random = random.Uint64N
		group.Go(func() {
			for i := 0; ; i++ {
				owner := service(fmt.Sprint("s-", server, "-", i))
				address, err := a.ClaimAny(owner, corev1.IPv4Protocol, false)
				if errors.Is(err, ErrFull) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, ok := owners[address]; ok {
					t.Errorf("%s is of %s and %s", address, other, owner.Name)
				}
				owners[address] = owner.Name
				mu.Unlock()
				if random.IntN(4) == 0 {
					mu.Lock()
					delete(owners, address)
					mu.Unlock()
					if err := a.Release(owner, address); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	if len(owners) != size || claims(t, client) != size {
		t.Errorf("%d owners, %d claims of %d addresses", len(owners), claims(t, client), size)
	}
	a := NewAddresses(client.NetworkingV1(), informers.NewSharedInformerFactory(client, 0).Networking().V1())
	for address, owner := range owners {
		if err := a.Release(service(owner), address); err != nil {
			t.Error(err)
		}
	}
	if n := claims(t, client); n != 0 {
		t.Errorf("%d claims are left", n)
	}
}

// TestOtherErrorsEndTheSearch checks that an error other than AlreadyExists ends the search,
// instead of trying the whole range.
func TestOtherErrorsEndTheSearch(t *testing.T) {
	a, client := newAddresses(serviceRange("a", "10.1.0.0/24", metav1.ConditionTrue))
	calls := 0
	client.PrependReactor("create", "ipaddresses", refuse(&calls, apierrors.NewInternalError(errors.New("down"))))
	if _, err := a.ClaimAny(service("s"), corev1.IPv4Protocol, false); !apierrors.IsInternalError(err) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
