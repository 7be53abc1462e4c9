// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
)

// The pauses between attempts to write.
const (
	writeRetryFirst = 100 * time.Millisecond
	writeRetryMax   = 10 * time.Second
)

// statusWriter writes one pod's status to the API, in order and without delay. Changes during a
// write are combined into the next one.
type statusWriter struct {
	parts *Parts
	wake  chan struct{}

	mu     sync.Mutex
	pod    *v1.Pod // the newest that the API returned
	status v1.PodStatus
	dirty  bool
	since  time.Time // when the status changed first; zero if it is written
	final  bool      // the pod is to be deleted once the status is written
}

func newStatusWriter(parts *Parts) *statusWriter {
	return &statusWriter{parts: parts, wake: make(chan struct{}, 1)}
}

// set sets the status to write. If final is set, the pod is deleted after the write.
func (s *statusWriter) set(pod *v1.Pod, status v1.PodStatus, final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newer := s.pod == nil || IsNewer(pod, s.pod)
	if !newer && final == s.final && equality.Semantic.DeepEqual(s.status, status) {
		return
	}
	if newer {
		s.pod = pod
	}
	s.status, s.final, s.dirty = status, final, true
	if s.since.IsZero() && s.parts.Observer != nil {
		s.since = s.parts.Clock.Now()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *statusWriter) take() (pod *v1.Pod, status v1.PodStatus, since time.Time, final, dirty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty, since = s.dirty, s.since
	s.dirty, s.since = false, time.Time{}
	return s.pod, s.status, since, s.final, dirty
}

// run writes until ctx ends, and retries failed writes with backoff.
func (s *statusWriter) run(ctx context.Context) {
	var retry time.Duration
	for {
		var alarm <-chan time.Time
		if retry > 0 {
			alarm = s.parts.Clock.After(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-alarm:
			s.mu.Lock()
			s.dirty = true
			s.mu.Unlock()
		}
		pod, status, since, final, dirty := s.take()
		if !dirty {
			continue
		}
		err := s.write(ctx, pod, status, final)
		if err == nil || ctx.Err() != nil {
			retry = 0
			s.observeWritten(since, err)
			continue
		}
		s.keepSince(since)
		retry = min(max(2*retry, writeRetryFirst), writeRetryMax)
		klog.FromContext(ctx).Error(err, "Cannot write pod status, will retry", "pod", klog.KObj(pod), "after", retry)
	}
}

// keepSince keeps when a status changed that could not be written.
func (s *statusWriter) keepSince(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// observeWritten counts a status that was written.
func (s *statusWriter) observeWritten(since time.Time, err error) {
	if err == nil && !since.IsZero() && s.parts.Observer != nil {
		s.parts.Observer.StatusWritten(s.parts.Clock.Since(since))
	}
}

func (s *statusWriter) write(ctx context.Context, pod *v1.Pod, status v1.PodStatus, final bool) error {
	keepOthersFields(&status, &pod.Status) // from the newest pod, which may be newer than the decision
	written, err := s.parts.Status.Write(ctx, pod, status)
	if err != nil {
		return err
	}
	if written == nil {
		return nil
	}
	s.mu.Lock()
	if IsNewer(written, s.pod) {
		s.pod = written
	}
	s.mu.Unlock()
	if !final {
		return nil
	}
	return s.parts.Status.Delete(ctx, pod)
}

// IsNewer reports whether a is a newer version of a pod than b, by their resource versions (KEP-5504).
// If these cannot be compared, a counts as newer.
func IsNewer(a, b *v1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err != nil || order > 0
}

// MirrorStatus returns the status of a mirror pod for that of its static pod. It keeps the fields of other clients. Nothing in
// it is about the mirror pod's generation: a static pod has none.
func MirrorStatus(mirror *v1.Pod, status v1.PodStatus) v1.PodStatus {
	status = *status.DeepCopy()
	keepOthersFields(&status, &mirror.Status)
	return status
}
