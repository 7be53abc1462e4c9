// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
)

const (
	// cronJobs are due in the same second.
	cronJobs = 1000
	// planting is the time limit for creating the CronJobs. They must exist before they are due.
	planting = 20 * time.Second
)

// schedulingJobs measures the time from the scheduled minute of the CronJobs until the last of them
// has reported its Job.
func schedulingJobs(nodes int) work {
	return work{nodes: nodes, measure: func(ctx context.Context, s *side) (float64, error) {
		due, err := plan(ctx, s)
		if err != nil {
			return 0, err
		}
		var took time.Duration
		before := s.processorTime()
		err = s.profiled(ctx, func() error {
			took, err = due.await(ctx)
			return err
		})
		// A busy machine affects the CPU time less than the time.
		fmt.Printf("  %v of %s's processor time for each CronJob\n", ((s.processorTime() - before) / cronJobs).Round(time.Microsecond), s.name)
		return took.Seconds(), err
	}}
}

// schedule is a minute at which CronJobs are due, and the events of their objects.
type schedule struct {
	minute time.Time
	events watch.Interface
}

// plan creates CronJobs that are due each minute, and returns when they are due.
func plan(ctx context.Context, client kubernetes.Interface) (*schedule, error) {
	due := time.Now().Add(planting).Truncate(time.Minute).Add(time.Minute)
	if err := sleepUntil(ctx, due.Add(-time.Minute)); err != nil {
		return nil, err
	}
	api := client.BatchV1().CronJobs(metav1.NamespaceDefault)
	if err := createCronJobs(ctx, api); err != nil {
		return nil, err
	}
	events, err := api.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if late := time.Since(due); late > 0 {
		events.Stop()
		return nil, fmt.Errorf("the creation of the CronJobs ended %v after they were due", late)
	}
	return &schedule{due, events}, sleepUntil(ctx, due)
}

// await waits for the first Job of each CronJob, and returns how long that took.
func (s *schedule) await(ctx context.Context) (time.Duration, error) {
	started := map[string]bool{}
	err := await(ctx, s.events, func(e watch.Event) bool {
		if cron, ok := e.Object.(*batchv1.CronJob); ok && cron.Status.LastScheduleTime != nil {
			started[cron.Name] = true
		}
		return len(started) == cronJobs
	})
	return time.Since(s.minute), err
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// createCronJobs creates them with 16 clients.
func createCronJobs(ctx context.Context, api batchclient.CronJobInterface) error {
	template := pod("")
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	names, errs := make(chan int), make(chan error, cronJobs)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for i := range names {
				_, err := api.Create(ctx, &batchv1.CronJob{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bench-", i)},
					Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
						Template: corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
					}}},
				}, metav1.CreateOptions{})
				errs <- err
			}
		})
	}
	for i := range cronJobs {
		names <- i
	}
	close(names)
	clients.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
