// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	clienttesting "k8s.io/client-go/testing"
)

// oneObject is a store of one object with the methods that Ports uses. The first attempt of each
// update fails, as if another server had been faster.
type oneObject struct {
	storage.Interface
	mu       sync.Mutex
	stored   corev1.RangeAllocation
	revision uint64
}

func (o *oneObject) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (o *oneObject) Get(_ context.Context, _ string, _ storage.GetOptions, out runtime.Object) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stored.DeepCopyInto(out.(*corev1.RangeAllocation))
	return nil
}

func (o *oneObject) GuaranteedUpdate(_ context.Context, _ string, _ runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, _, err := update(o.stored.DeepCopy(), storage.ResponseMeta{}); err != nil {
		return err
	}
	changed, _, err := update(o.stored.DeepCopy(), storage.ResponseMeta{})
	if err != nil {
		return err
	}
	o.stored = *changed.(*corev1.RangeAllocation)
	o.revision++
	o.stored.ResourceVersion = strconv.FormatUint(o.revision, 10)
	return nil
}

func newPorts() *Ports {
	return &Ports{storage: &oneObject{}, static: staticBand(portCount, 32, 128), random: rand.New(rand.NewPCG(3, 4)).Uint64N}
}

func refuse(calls *int, err error) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) {
		*calls++
		return true, nil, err
	}
}

func claimedPorts(t *testing.T, p *Ports) []int32 {
	t.Helper()
	bits, _, err := p.claimed(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var ports []int32
	for i := range bits.BitLen() {
		if bits.Bit(i) == 1 {
			ports = append(ports, int32(firstPort+i))
		}
	}
	return ports
}

func TestClaimPorts(t *testing.T) {
	p := newPorts()
	must := func(wanted ...int32) []int32 {
		t.Helper()
		got, err := p.Claim(wanted, false)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := must(30000, 32767); !cmp.Equal(got, []int32{30000, 32767}) {
		t.Errorf("got %v", got)
	}
	any := must(0, 30001)
	if any[0] < firstPort+86 || any[1] != 30001 {
		t.Errorf("got %v: want any port from the dynamic band", any)
	}
	for _, tc := range []struct {
		wanted []int32
		index  int
		want   error
	}{
		{[]int32{0, 30000}, 1, ErrPortClaimed},
		{[]int32{29999}, 0, ErrPortOutsideRange},
		{[]int32{30005, 32768}, 1, ErrPortOutsideRange},
		{[]int32{30006, 30006}, 1, ErrPortClaimed},
	} {
		_, err := p.Claim(tc.wanted, false)
		var failed *PortError
		if !errors.As(err, &failed) || failed.Index != tc.index || !errors.Is(err, tc.want) {
			t.Errorf("%v: %v, want %v at %d", tc.wanted, err, tc.want, tc.index)
		}
	}
	// A failed claim and a dry run claim no port.
	if _, err := p.Claim([]int32{30007, 0}, true); err != nil {
		t.Error(err)
	}
	if got, err := p.Claim([]int32{80, 0, 30008}, true); err != nil || got[0] != 80 || !isNodePort(got[1]) || got[2] != 30008 {
		t.Errorf("a dry run with a port outside of the range: %v, %v", got, err)
	}
	for _, wanted := range [][]int32{{80, 80}, {80, 30000}} {
		var failed *PortError
		if _, err := p.Claim(wanted, true); !errors.As(err, &failed) || failed.Index != 1 || !errors.Is(err, ErrPortClaimed) {
			t.Errorf("a dry run of %v: %v", wanted, err)
		}
	}
	if got := claimedPorts(t, p); len(got) != 4 {
		t.Errorf("claimed %v", got)
	}
	if err := p.Release(30000, 30001, 30002, 80); err != nil {
		t.Fatal(err)
	}
	if got := claimedPorts(t, p); !cmp.Equal(got, []int32{any[0], 32767}) {
		t.Errorf("left %v", got)
	}
}

// TestNoPortTwice checks that concurrent claims get each port once, until the range is full.
func TestNoPortTwice(t *testing.T) {
	p := newPorts()
	var mu sync.Mutex
	seen := map[int32]bool{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				got, err := p.Claim([]int32{0, 0}, false)
				if errors.Is(err, ErrFull) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, port := range got {
					if seen[port] || !isNodePort(port) {
						t.Errorf("%d", port)
					}
					seen[port] = true
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(seen) != portCount {
		t.Errorf("%d of %d ports", len(seen), portCount)
	}
}

func TestPortsOfAnotherRange(t *testing.T) {
	p := newPorts()
	p.storage.(*oneObject).stored.Range = "20000-22767"
	if _, err := p.Claim([]int32{30000}, false); err == nil {
		t.Error("claims of another range were accepted")
	}
	if err := p.Release(30000); err == nil {
		t.Error("claims of another range were changed")
	}
}
