// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
)

// model records how each pod ended that was tracked when it ended or was deleted. A Job's counters
// must agree with it in the end.
type model struct {
	*bench
	rng *rand.Rand
	// ended holds the pods that ended while tracked, and whether they succeeded. taken holds the
	// pods that other clients deleted, which may count as failed before they end.
	ended map[types.UID]bool
	taken map[types.UID]bool
	// writesLeft is how many writes the process does before it crashes; < 0 means no crash.
	writesLeft  int
	parallelism int32
}

func newModel(t *testing.T, seed int64, job *batchv1.Job) *model {
	m := &model{
		bench: newBench(t, job), rng: rand.New(rand.NewSource(seed)), ended: map[types.UID]bool{}, taken: map[types.UID]bool{},
		writesLeft: -1, parallelism: *job.Spec.Parallelism,
	}
	// The in-memory API sets deletion timestamps to the real time.
	m.Clock.SetTime(time.Now())
	m.Refuse = func(string, client.Object) error {
		if m.writesLeft == 0 {
			return errors.New("the process has crashed")
		}
		m.writesLeft--
		return nil
	}
	return m
}

// work reconciles with a cache of random age, and may crash between any two writes.
func (m *model) work() {
	if m.rng.Intn(2) == 0 {
		m.Sync()
	}
	m.writesLeft = -1
	if m.rng.Intn(3) == 0 {
		m.writesLeft = m.rng.Intn(5)
	}
	_, err := m.reconcile()
	if m.writesLeft == 0 {
		m.restart()
	} else if err != nil {
		m.t.Fatalf("reconcile: %v", err)
	}
	m.writesLeft = -1
}

// step makes a random change.
func (m *model) step() {
	live := m.live()
	switch m.rng.Intn(12) {
	case 0, 1, 2:
		if len(live) > 0 {
			m.end(live[m.rng.Intn(len(live))])
		}
	case 3:
		if len(live) > 0 && m.rng.Intn(3) == 0 {
			pod := live[m.rng.Intn(len(live))]
			m.taken[pod.UID] = isTracked(pod)
			m.Must(m.API.Delete(ctx, pod))
		}
	case 4:
		for _, pod := range m.all() {
			if pod.DeletionTimestamp == nil {
				continue
			}
			if pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "" {
				m.end(pod)
			}
			m.removePod(m.get(pod))
		}
	case 5:
		if m.rng.Intn(3) == 0 {
			m.parallelism = int32(m.rng.Intn(5))
			m.edit(func(spec *batchv1.JobSpec) { spec.Parallelism = ptr.To(m.parallelism) })
			m.Sync()
		}
	case 6:
		m.Clock.Step(time.Duration(m.rng.Intn(400)) * time.Second)
	default:
		m.work()
		m.check()
	}
}

func (m *model) end(pod *corev1.Pod) {
	code := int32(m.rng.Intn(2))
	m.terminate(pod, code)
	if isTracked(pod) {
		m.ended[pod.UID] = code == 0
	}
}

// tally returns how many pods of the model have succeeded and failed, and how many may count as
// either.
func (m *model) tally() (succeeded, failed, either int) {
	for uid, ok := range m.ended {
		switch {
		case m.taken[uid]:
			either++
		case ok:
			succeeded++
		default:
			failed++
		}
	}
	for uid, tracked := range m.taken {
		if _, known := m.ended[uid]; tracked && !known {
			either++
		}
	}
	return succeeded, failed, either
}

// check fails the test if the status counts more pods than have ended.
func (m *model) check() {
	m.t.Helper()
	status := m.job().Status
	succeeded, failed, either := m.tally()
	listed := ptr.Deref(status.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	if got := int(status.Succeeded) + len(listed.Succeeded); !isIndexed(m.job()) && got > succeeded+either {
		m.t.Fatalf("%d counted as succeeded, %d have, %d were deleted", got, succeeded, either)
	}
	if got := int(status.Failed) + len(listed.Failed); got > failed+either {
		m.t.Fatalf("%d counted as failed, %d have, %d were deleted", got, failed, either)
	}
}

// finish lets all pods succeed until the Job is complete.
func (m *model) finish() *batchv1.Job {
	m.t.Helper()
	m.edit(func(spec *batchv1.JobSpec) { spec.Parallelism = ptr.To[int32](3) })
	for range 60 {
		for _, pod := range m.all() {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				m.terminate(pod, 0)
				if isTracked(pod) {
					m.ended[pod.UID] = true
				}
			}
			m.removePod(m.get(pod))
		}
		m.Clock.Step(maxDelay)
		if job := m.settle(); jobs.Finished(job) != nil {
			return job
		}
	}
	m.t.Fatalf("the Job does not finish: %+v", m.job().Status)
	return nil
}

// TestEachPodIsCountedOnce lets pods end in random ways, with crashes between any two writes and a
// stale cache.
func TestEachPodIsCountedOnce(t *testing.T) {
	for _, policy := range []batchv1.PodReplacementPolicy{batchv1.TerminatingOrFailed, batchv1.Failed} {
		for seed := range int64(10) {
			t.Run(fmt.Sprintf("%s/%d", policy, seed), func(t *testing.T) {
				m := newModel(t, seed, newJob(workOf(3, 12), func(spec *batchv1.JobSpec) {
					spec.BackoffLimit, spec.PodReplacementPolicy = ptr.To[int32](1000), &policy
				}))
				for range 80 {
					m.step()
				}
				job := m.finish()
				m.check()
				succeeded, failed, either := m.tally()
				if got := int(job.Status.Succeeded + job.Status.Failed); got != succeeded+failed+either {
					t.Errorf("the status counts %d succeeded and %d failed; want %d, %d, and %d that were deleted",
						job.Status.Succeeded, job.Status.Failed, succeeded, failed, either)
				}
				if jobs.Finished(job).Type != batchv1.JobComplete || job.Status.Succeeded < 12 {
					t.Errorf("status %+v", job.Status)
				}
				for _, pod := range m.all() {
					if isTracked(pod) {
						t.Errorf("pod %s keeps the finalizer", pod.Name)
					}
				}
			})
		}
	}
}

// TestEachIndexSucceedsOnce does the same for an Indexed Job: each index succeeds at most once, and
// with backoffLimitPerIndex fails no more often than that.
func TestEachIndexSucceedsOnce(t *testing.T) {
	for seed := range int64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed, newJob(indexed, workOf(3, 6), limitPerIndex(1)))
			for range 80 {
				if jobs.Finished(m.job()) != nil {
					break
				}
				m.step()
			}
			job := m.finish()
			m.check()
			if _, failed, either := m.tally(); int(job.Status.Failed) > failed+either || int(job.Status.Failed) < failed {
				t.Errorf("the status counts %d failed, want %d, and %d deleted", job.Status.Failed, failed, either)
			}
			completed := parseIndexes(job.Status.CompletedIndexes, 6)
			lost := parseIndexes(*job.Status.FailedIndexes, 6)
			if completed.countShared(lost) != 0 || completed.count()+lost.count() != 6 || int(job.Status.Succeeded) != completed.count() {
				t.Errorf("completed %v, failed %v, %d succeeded", completed, lost, job.Status.Succeeded)
			}
			if want := lost.count() > 0; want != (jobs.Finished(job).Type == batchv1.JobFailed) {
				t.Errorf("the Job ended with %v, indexes %v failed", trueConditions(job.Status), lost)
			}
		})
	}
}

// TestNeverCreatesTooManyPods uses a cache of random age, without crashes.
func TestNeverCreatesTooManyPods(t *testing.T) {
	for seed := range int64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed, newJob(workOf(4, 9), func(spec *batchv1.JobSpec) { spec.BackoffLimit = ptr.To[int32](1000) }))
			for range 80 {
				live := m.live()
				switch m.rng.Intn(6) {
				case 0:
					m.Sync()
				case 1:
					if len(live) > 0 {
						m.end(live[m.rng.Intn(len(live))])
					}
				case 2:
					m.Clock.Step(5 * time.Minute)
				default:
					_, err := m.reconcile()
					m.Must(err)
				}
				succeeded, _, _ := m.tally()
				if got := len(m.live()); got > 4 || got+succeeded > 9 {
					t.Fatalf("%d pods run and %d have succeeded; want 4 at a time and 9 in total", got, succeeded)
				}
			}
		})
	}
}
