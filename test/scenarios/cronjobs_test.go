// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cronJob returns a CronJob that is due each minute. Its pods run for the given time on simulated
// nodes.
func cronJob(name, spec, runs string) string {
	return `
apiVersion: batch/v1
kind: CronJob
metadata: {name: ` + name + `}
spec:
  schedule: "* * * * *"
  ` + spec + `
  jobTemplate:
    metadata: {labels: {cron: ` + name + `}}
    spec:
      template:
        metadata: {annotations: {kindred.dev/simulated-exit-after: ` + runs + `, kindred.dev/simulated-exit-code: "0"}}
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 0
          containers: [{name: c, image: any}]
---`
}

// TestCronJobs waits for two minutes, at which CronJobs with each policy are due.
func TestCronJobs(t *testing.T) {
	s := withoutNode(t)
	s.apply(cronJob("tick", "timeZone: Asia/Kolkata", "100ms") +
		cronJob("clean", "successfulJobsHistoryLimit: 0", "100ms") +
		cronJob("idle", "suspend: true", "100ms") +
		cronJob("allow", "concurrencyPolicy: Allow", "1h") +
		cronJob("forbid", "concurrencyPolicy: Forbid", "1h") +
		cronJob("replace", "concurrencyPolicy: Replace", "1h"))
	s.kubectl("create", "job", "manual", "--from=cronjob/tick")
	s.jobEnds("manual", "complete")
	s.eventually("the success of the manual Job is recorded", func() error {
		if s.jsonpath("{.status.lastSuccessfulTime}", "cronjob", "tick") == "" {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	for _, name := range []string{"allow", "tick"} {
		s.within(90*time.Second, name+" starts", func() error { return s.scheduled(name, 1) })
	}
	first := s.jobsOf("tick")
	s.eventually("the Job of tick completes", func() error {
		if active := s.jsonpath("{.status.active}", "cronjob", "tick"); active != "" {
			return fmt.Errorf("active: %s", active)
		}
		return nil
	})
	s.table("NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST SCHEDULE AGE\ntick * * * * * Asia/Kolkata False 0 * *", "get", "cronjob", "tick")
	for _, job := range first {
		at, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if job.Name == "manual" {
			continue
		}
		if _, zone := at.Zone(); err != nil || zone != 19800 || job.Name != fmt.Sprintf("tick-%d", at.Unix()/60) || job.CreationTimestamp.Sub(at) > 20*time.Second {
			t.Errorf("%s was created at %v for %v: %v", job.Name, job.CreationTimestamp, at, err)
		}
	}
	s.describes("cronjob", "tick", "SuccessfulCreate", "Created job tick-", "SawCompletedJob", "condition: Complete", "cronjob-controller")
	s.contains(s.kindred("tree", "cronjob/tick").out, "Job/tick-")

	s.within(90*time.Second, "the CronJobs start again", func() error { return s.scheduled("allow", 2) })
	s.eventually("the policies are kept", func() error {
		forbid, replace := s.jobsOf("forbid"), s.jobsOf("replace")
		if len(forbid) != 1 || len(replace) != 1 || replace[0].CreationTimestamp.Equal(&forbid[0].CreationTimestamp) {
			return fmt.Errorf("%d Jobs of forbid, %d of replace", len(forbid), len(replace))
		}
		return nil
	})
	s.describes("cronjob", "forbid", "JobAlreadyActive")
	s.describes("cronjob", "replace", "SuccessfulDelete")
	s.eventually("no finished Job of clean is kept", func() error {
		if n := len(s.jobsOf("clean")); n > 0 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if n := len(s.jobsOf("idle")); n > 0 {
		t.Errorf("the suspended CronJob started %d Jobs", n)
	}
	s.kubectl("delete", "cronjobs", "--all")
	s.eventually("the Jobs go with their CronJobs", func() error {
		if out := s.kubectl("get", "jobs", "-o", "name"); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// TestCronJobsSurviveKill kills the server around the scheduled time of 30 CronJobs. Each gets one Job
// for it.
func TestCronJobsSurviveKill(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node", "--simulated-nodes", "2")
	s := newSession(t, c)
	var manifest strings.Builder
	for i := range 30 {
		manifest.WriteString(cronJob(fmt.Sprint("tick-", i), "concurrencyPolicy: "+[]string{"Forbid", "Replace"}[i%2]+"\n  successfulJobsHistoryLimit: 9", "100ms"))
	}
	due := time.Now().Add(10 * time.Second).Truncate(time.Minute).Add(time.Minute)
	time.Sleep(time.Until(due.Add(-time.Minute))) // so that the minute begins after the CronJobs exist
	s.apply(manifest.String())
	time.Sleep(time.Until(due))
	seen := map[string]types.UID{}
	for kill := range 8 {
		time.Sleep(time.Duration(20+30*kill) * time.Millisecond)
		c.kill(t)
		c.again(t)
		for _, job := range s.jobsOf("") {
			if uid, known := seen[job.Name]; known && uid != job.UID {
				t.Errorf("%s was created twice", job.Name)
			}
			seen[job.Name] = job.UID
		}
	}
	s.eventually("all have started and ended", func() error {
		for i := range 30 {
			if err := s.scheduled(fmt.Sprint("tick-", i), 1); err != nil {
				return err
			}
		}
		return nil
	})
	if time.Since(due) > 50*time.Second {
		t.Skip("the machine is too slow: the next minute has begun")
	}
	if jobs := s.jobsOf(""); len(jobs) != 30 {
		t.Errorf("%d Jobs for 30 CronJobs", len(jobs))
	}
	if out := s.kubectl("get", "events"); strings.Contains(out, "UnexpectedJob") {
		t.Errorf("a Job was forgotten:\n%s", out)
	}
}

// jobsOf returns the Jobs of a CronJob, or of all ("").
func (s *session) jobsOf(cron string) []batchv1.Job {
	s.Helper()
	selector := "cron"
	if cron != "" {
		selector += "=" + cron
	}
	list, err := s.cluster.client(s.T).BatchV1().Jobs(s.namespace).List(s.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		s.Fatal(err)
	}
	return list.Items
}

// scheduled returns an error unless the CronJob has at least n Jobs, and its status the time of the
// last one.
func (s *session) scheduled(name string, n int) error {
	cron, err := s.cluster.client(s.T).BatchV1().CronJobs(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	jobs := s.jobsOf(name)
	if len(jobs) < n || cron.Status.LastScheduleTime == nil {
		return fmt.Errorf("%s has %d Jobs, status %+v", name, len(jobs), cron.Status)
	}
	return nil
}
