// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kindred-project/kindred/internal/node/csi"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// The reasons of events about volumes.
const (
	failedMount = "FailedMount"
	failedMap   = "FailedMapVolume"
)

// stepError is the failure of one step of setting a volume up.
type stepError struct {
	step   string // as in upstream's texts: "MountVolume.SetUp failed"
	reason string
	err    error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func mountStep(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step: "MountVolume." + step + " failed", reason: failedMount, err: err}
}

func mapStep(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step: "MapVolume." + step + " failed", reason: failedMap, err: err}
}

// unresolved is the failure to find out what a volume consists of.
type unresolved struct{ error }

// waiting is a state that passes without an event: another part of the cluster reports its progress.
type waiting struct{ error }

func (w waiting) Unwrap() error { return w.error }

// failures collects the failures of one attempt to prepare a pod's volumes.
type failures struct {
	list       []error
	unresolved map[string]error // by the volume's name in the pod
	// unmounted and unattached are names of the pod's volumes, the latter of those that were not attached in
	// time. tooMany is set if the node's driver cannot attach one of them.
	unmounted, unattached []string
	tooMany               bool
}

// add takes a failure of a volume. volume is its name in events: the persistent volume's, if it has one.
func (f *failures) add(name, volume string, err error) {
	f.unmounted = append(f.unmounted, name)
	var missing unresolved
	if errors.As(err, &missing) {
		if f.unresolved == nil {
			f.unresolved = map[string]error{}
		}
		f.unresolved[name] = err
		return
	}
	if isUnattached(err) {
		f.unattached = append(f.unattached, name)
		f.tooMany = f.tooMany || errors.Is(err, csi.ErrTooMany)
	}
	var step *stepError
	if !errors.As(err, &step) {
		step = &stepError{step: "MountVolume.SetUp failed", reason: failedMount, err: err}
	}
	reason := step.reason
	if errors.As(err, &waiting{}) {
		reason = ""
	}
	f.list = append(f.list, &nodepod.VolumeError{
		Reason: reason, Message: fmt.Sprintf("%s for volume %q : %v", step.step, volume, step.err),
	})
}

// err returns all failures, one for each event, or nil. The pod cannot start on this node if the node has too
// many volumes.
func (f *failures) err() error {
	if f.tooMany {
		return &nodepod.TooManyVolumes{Message: "Node has reached its volume attachment limit, rejecting pod. " +
			f.missing(f.unmounted, f.unattached, context.DeadlineExceeded.Error())}
	}
	list := f.list
	if len(f.unresolved) > 0 {
		list = append(list, &nodepod.VolumeError{Reason: failedMount, Message: f.unprocessed()})
	}
	if len(list) == 1 {
		return list[0]
	}
	return errors.Join(list...)
}

// unprocessed is upstream's text for volumes that could not be resolved.
func (f *failures) unprocessed() string {
	names := slices.Sorted(maps.Keys(f.unresolved))
	var texts []string
	for _, name := range names {
		texts = append(texts, f.unresolved[name].Error())
	}
	return "Unable to attach or mount volumes: " + f.missing(names, nil, strings.Join(texts, "; "))
}

// missing is upstream's list of the volumes that a pod lacks.
func (f *failures) missing(unmounted, unattached []string, reason string) string {
	return fmt.Sprintf("unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %s",
		slices.Sorted(slices.Values(unmounted)), slices.Sorted(slices.Values(unattached)), slices.Sorted(maps.Keys(f.unresolved)), reason)
}
