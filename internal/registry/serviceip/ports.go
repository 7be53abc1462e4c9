// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	storeerrors "k8s.io/apiserver/pkg/storage/errors"
)

// The node ports, as upstream's --service-node-port-range.
const (
	firstPort = 30000
	lastPort  = 32767
	portCount = lastPort - firstPort + 1
	portRange = "30000-32767"
)

// portClaims is the resource under which claims of ports are stored, as upstream does.
var portClaims = schema.GroupResource{Resource: "servicenodeportallocations"}

const (
	portPrefix = "/ranges"
	portKey    = "/ranges/servicenodeports"
)

// Ports claims and releases node ports.
type Ports struct {
	storage storage.Interface
	static  uint64
	random  func(n uint64) uint64
}

// OpenPorts returns the Ports of a store.
func OpenPorts(options generic.RESTOptionsGetter) (*Ports, error) {
	where, err := options.GetRESTOptions(portClaims, &corev1.RangeAllocation{})
	if err != nil {
		return nil, err
	}
	// A single object is never listed or watched: it needs no keys, selectors or indexes.
	store, _, err := where.Decorator(where.StorageConfig, portPrefix, nil,
		func() runtime.Object { return &corev1.RangeAllocation{} }, nil, nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("storage of node ports: %w", err)
	}
	return &Ports{storage: store, static: staticBand(portCount, 32, 128), random: rand.Uint64N}, nil
}

// PortError names the requested port that is not available.
type PortError struct {
	// Index is its index among the requested ports.
	Index int
	Err   error
}

func (e *PortError) Error() string { return e.Err.Error() }
func (e *PortError) Unwrap() error { return e.Err }

// Claim claims all requested ports or none, and returns them. A 0 requests any port. A dry run
// claims nothing, and accepts ports outside of the range, as upstream's does.
func (p *Ports) Claim(wanted []int32, dryRun bool) ([]int32, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if dryRun {
		claimed, _, err := p.claimed(ctx)
		if err != nil {
			return nil, err
		}
		return p.take(claimed, wanted, true)
	}
	var got []int32
	err := p.update(ctx, func(claimed *big.Int) (err error) {
		got, err = p.take(claimed, wanted, false)
		return err
	})
	return got, err
}

// take sets the bits of the requested ports: specific ports first, so that none of them is
// allocated for a 0. A dry run only checks that a port outside of the range is not requested
// twice.
func (p *Ports) take(claimed *big.Int, wanted []int32, dryRun bool) ([]int32, error) {
	got := make([]int32, len(wanted))
	for i, port := range wanted {
		if port == 0 {
			continue
		}
		inside := isNodePort(port)
		switch {
		case !inside && !dryRun:
			return nil, &PortError{i, ErrPortOutsideRange}
		case !inside && slices.Contains(got[:i], port), inside && claimed.Bit(bit(port)) == 1:
			return nil, &PortError{i, ErrPortClaimed}
		}
		got[i] = port
		if inside {
			claimed.SetBit(claimed, bit(port), 1)
		}
	}
	for i, port := range wanted {
		if port != 0 {
			continue
		}
		if got[i] = p.free(claimed); got[i] == 0 {
			return nil, &PortError{i, ErrFull}
		}
		claimed.SetBit(claimed, bit(got[i]), 1)
	}
	return got, nil
}

// free returns a port that is not claimed, or 0.
func (p *Ports) free(claimed *big.Int) int32 {
	for offset := range offers(portCount, p.static, p.random) {
		if claimed.Bit(int(offset)) == 0 {
			return firstPort + int32(offset)
		}
	}
	return 0
}

// Release releases ports. It ignores those outside of the range.
func (p *Ports) Release(ports ...int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return p.update(ctx, func(claimed *big.Int) error {
		for _, port := range ports {
			if isNodePort(port) {
				claimed.SetBit(claimed, bit(port), 0)
			}
		}
		return nil
	})
}

func isNodePort(port int32) bool { return firstPort <= port && port <= lastPort }
func bit(port int32) int         { return int(port - firstPort) }

// claimed returns the claims, and the store revision at which they were written.
func (p *Ports) claimed(ctx context.Context) (*big.Int, uint64, error) {
	stored := &corev1.RangeAllocation{}
	if err := p.storage.Get(ctx, portKey, storage.GetOptions{IgnoreNotFound: true}, stored); err != nil {
		return nil, 0, storeerrors.InterpretGetError(err, portClaims, "")
	}
	claimed, err := bitsOf(stored)
	if err != nil || stored.ResourceVersion == "" {
		return claimed, 0, err
	}
	revision, err := p.storage.Versioner().ObjectResourceVersion(stored)
	return claimed, revision, err
}

// bitsOf decodes stored claims. It refuses another range, whose bits are other ports.
func bitsOf(stored *corev1.RangeAllocation) (*big.Int, error) {
	if stored.Range != "" && stored.Range != portRange {
		return nil, apierrors.NewInternalError(fmt.Errorf("the store has node ports of the range %s, and this server allocates %s", stored.Range, portRange))
	}
	return new(big.Int).SetBytes(stored.Data), nil
}

// update changes the claims by compare-and-swap: it calls change again after a conflict with
// another server. It does not write unchanged claims.
func (p *Ports) update(ctx context.Context, change func(claimed *big.Int) error) error {
	var refused error
	err := p.storage.GuaranteedUpdate(ctx, portKey, &corev1.RangeAllocation{}, true, nil,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			stored := object.(*corev1.RangeAllocation)
			var claimed *big.Int
			if claimed, refused = bitsOf(stored); refused != nil {
				return nil, refused
			}
			if refused = change(claimed); refused != nil {
				return nil, refused
			}
			stored.Range, stored.Data = portRange, claimed.Bytes()
			return stored, nil
		}), nil)
	if refused != nil && errors.Is(err, refused) {
		return refused
	}
	if err != nil {
		return storeerrors.InterpretUpdateError(err, portClaims, "")
	}
	return nil
}
