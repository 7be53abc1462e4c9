// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if c.ReserveDisk == 0 || !c.Backend.IsEmbedded() {
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

// admit refuses a write that needs space.
func (r *reserve) admit(a admission.Attributes) error {
	if !takesRoom(a) {
		return nil
	}
	return r.refuse()
}

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
