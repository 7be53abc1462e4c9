// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
)

// model runs a CronJob whose controller is killed between any two writes and whose cache has a
// random age. It records each Job that was ever seen.
type model struct {
	*bench
	rng *rand.Rand
	// writesLeft is the number of writes before the process is killed; negative for no limit.
	writesLeft int
	// seen has the Job of each scheduled time.
	seen map[string]types.UID
}

func newModel(t *testing.T, seed uint64) *model {
	rng := rand.New(rand.NewPCG(seed, 0))
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	m := &model{rng: rng, seen: map[string]types.UID{}, writesLeft: -1}
	m.bench = newBench(t, policy(policies[rng.IntN(3)]), scheduled(fmt.Sprintf("*/%d * * * *", 1+rng.IntN(15)), ptr.To("Etc/UTC")), func(cron *batchv1.CronJob) {
		cron.Spec.SuccessfulJobsHistoryLimit = ptr.To(int32(rng.IntN(3)))
		cron.Spec.FailedJobsHistoryLimit = ptr.To(int32(rng.IntN(2)))
		if rng.IntN(2) == 0 {
			deadline(int64(rng.IntN(600)))(cron)
		}
	})
	m.Refuse = func(string, client.Object) error {
		if m.writesLeft == 0 {
			return errors.New("the process was killed")
		}
		m.writesLeft--
		return nil
	}
	return m
}

// step makes a random change.
func (m *model) step() {
	m.t.Helper()
	switch n := m.rng.IntN(10); {
	case n < 2:
		m.Clock.Step(time.Duration(m.rng.IntN(1200)) * time.Second)
	case n < 4:
		for _, job := range m.all() {
			if jobs.Finished(job) == nil && m.rng.IntN(2) == 0 {
				m.end(job, []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}[m.rng.IntN(2)])
			}
		}
	case n == 4:
		m.Clock.SetTime(m.Clock.Now().Add(-time.Duration(m.rng.IntN(1800)) * time.Second))
	default:
		m.work()
	}
	m.check()
}

// work reconciles, and may be killed. A new process begins with a current cache.
func (m *model) work() {
	m.t.Helper()
	if m.rng.IntN(2) == 0 {
		m.Sync()
	}
	if m.rng.IntN(3) == 0 {
		m.writesLeft = m.rng.IntN(4)
	}
	_, err := m.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	if m.writesLeft == 0 {
		m.Sync()
		m.reconciler = newReconciler(m.Env(), m.Seen, m.Seen)
	} else if err != nil {
		m.t.Fatal(err)
	}
	m.writesLeft = -1
}

func (m *model) check() {
	m.t.Helper()
	running := 0
	for _, job := range m.all() {
		at := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
		if uid, known := m.seen[at]; known && uid != job.UID {
			m.t.Fatalf("the time %s got a second Job", at)
		}
		m.seen[at] = job.UID
		if jobs.Finished(job) == nil {
			running++
		}
	}
	if running > 1 && m.cron().Spec.ConcurrencyPolicy != batchv1.AllowConcurrent {
		m.t.Fatalf("%d Jobs run with policy %s", running, m.cron().Spec.ConcurrencyPolicy)
	}
}

func TestKilledAtAnyWrite(t *testing.T) {
	lives := uint64(25)
	if testing.Short() {
		lives = 10
	}
	for seed := range lives {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newModel(t, seed)
			for range 60 {
				m.step()
			}
			// Everything ends, and the next time is due.
			m.Clock.SetTime(hourOf(24))
			for range 3 {
				m.reconcile()
				for _, job := range m.all() {
					if jobs.Finished(job) == nil {
						m.end(job, batchv1.JobComplete)
					}
				}
				m.check()
			}
			m.reconcile()
			cron := m.cron()
			limits := int(*cron.Spec.SuccessfulJobsHistoryLimit + *cron.Spec.FailedJobsHistoryLimit)
			if len(cron.Status.Active) != 0 || len(m.all()) > limits || len(m.seen) == 0 {
				t.Errorf("%d active, %d Jobs with limits of %d, %d started", len(cron.Status.Active), len(m.all()), limits, len(m.seen))
			}
		})
	}
}
