// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/utils/clock"
)

// reserve keeps a part of the store's disk free, because a store on a full disk cannot even delete.
// Below the reserve it refuses writes that need space. It does so in admission, which all writes
// pass, those to custom resources and of in-process clients included. It allows:
//   - deletions, and updates of objects that are being deleted, which remove finalizers;
//   - leases, which are small: without them every node would become NotReady.
type reserve struct {
	dir   string
	bytes uint64
	clock clock.PassiveClock
	// statfs returns how many bytes are available on the disk of a directory.
	statfs func(dir string) (uint64, error)

	mu      sync.Mutex
	checked time.Time
	free    uint64
	err     error
}

// reserveCheck is the time for which the free space is cached.
const reserveCheck = time.Second

// newReserve returns nil if etcd is external, or no bytes are to stay free.
func newReserve(c Config) *reserve {
	if c.ReserveDisk == 0 || c.Backend.Shared() {
		return nil
	}
	return &reserve{dir: c.DataDir, bytes: c.ReserveDisk, clock: c.Clock, statfs: freeBytes}
}

func freeBytes(dir string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// look returns the free space, which it reads at most once a second.
func (r *reserve) look() (free uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.clock.Now(); r.checked.IsZero() || now.Sub(r.checked) >= reserveCheck || now.Before(r.checked) {
		r.free, r.err = r.statfs(r.dir)
		r.checked = now
	}
	return r.free, r.err
}

// lack returns a message if the disk is nearly full, or "".
func (r *reserve) lack() (string, error) {
	free, err := r.look()
	if err != nil || free >= r.bytes {
		return "", err
	}
	return fmt.Sprintf("%s are free on the disk of %s and %s must stay free: delete files there, or objects that nobody needs",
		humanBytes(free), r.dir, humanBytes(r.bytes)), nil
}

func humanBytes(n uint64) string {
	const mebi = 1 << 20
	return resource.NewQuantity(int64(n/mebi*mebi), resource.BinarySI).String() + "B"
}

// readyCheck returns a check of /readyz that fails while writes are refused, and if the free space
// cannot be read.
func (r *reserve) readyCheck() healthz.HealthChecker {
	return healthz.NamedCheck("disk-reserve", func(*http.Request) error {
		lack, err := r.lack()
		if err == nil && lack != "" {
			err = errors.New(lack)
		}
		return err
	})
}

// reasonNoRoom is the reason of refused writes.
const reasonNoRoom metav1.StatusReason = "InsufficientStorage"

// refuse returns an error if there is no space for a write. If the free space cannot be read, it
// returns nil: if the disk is broken, the store fails.
func (r *reserve) refuse() error {
	lack, err := r.lack()
	if err != nil || lack == "" {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonNoRoom,
		Message: "writes are refused, the disk is nearly full: " + lack,
	}}
}

// unstored are groups whose objects are not stored.
var unstored = sets.New("authentication.k8s.io", "authorization.k8s.io")

var leases = coordinationv1.Resource("leases")

// takesRoom reports whether the request stores something.
func takesRoom(a admission.Attributes) bool {
	of := a.GetResource().GroupResource()
	switch {
	case a.IsDryRun(), unstored.Has(of.Group), of == leases:
		return false
	case a.GetOperation() == admission.Create:
		return !answered.Has(target{of, a.GetSubresource()})
	case a.GetOperation() == admission.Update:
		return !beingDeleted(a)
	}
	return false
}

type target struct {
	resource    schema.GroupResource
	subresource string
}

// answered are the subresources whose created objects are not stored.
var answered = sets.New(
	target{schema.GroupResource{Resource: "pods"}, "eviction"},
	target{schema.GroupResource{Resource: "serviceaccounts"}, "token"},
)

func beingDeleted(a admission.Attributes) bool {
	old, err := meta.Accessor(a.GetOldObject())
	return err == nil && old.GetDeletionTimestamp() != nil
}

// reserveAdmission checks the reserve before the plugins, which may call webhooks.
type reserveAdmission struct {
	admission.Interface
	reserve *reserve
}

var (
	_ admission.MutationInterface   = reserveAdmission{}
	_ admission.ValidationInterface = reserveAdmission{}
)

// Handles returns true: Admit and Validate call the plugins' Handles.
func (reserveAdmission) Handles(admission.Operation) bool { return true }

func (r reserveAdmission) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if takesRoom(a) {
		if err := r.reserve.refuse(); err != nil {
			return err
		}
	}
	if plugins, ok := r.Interface.(admission.MutationInterface); ok && r.Interface.Handles(a.GetOperation()) {
		return plugins.Admit(ctx, a, o)
	}
	return nil
}

func (r reserveAdmission) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if plugins, ok := r.Interface.(admission.ValidationInterface); ok && r.Interface.Handles(a.GetOperation()) {
		return plugins.Validate(ctx, a, o)
	}
	return nil
}
