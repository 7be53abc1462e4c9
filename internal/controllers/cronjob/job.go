// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// newJob returns the Job for a scheduled time.
func newJob(cron *batchv1.CronJob, scheduled time.Time) (*batchv1.Job, error) {
	zone, err := time.LoadLocation(ptr.Deref(cron.Spec.TimeZone, ""))
	if err != nil {
		return nil, err
	}
	template := &cron.Spec.JobTemplate
	annotations := map[string]string{}
	maps.Copy(annotations, template.Annotations)
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = scheduled.In(zone).Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       cron.Namespace,
			Name:            jobName(cron, scheduled),
			Labels:          maps.Clone(template.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cron, kind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}, nil
}

// jobName contains the minute of the scheduled time, so that a second Job for it is refused.
func jobName(cron *batchv1.CronJob, scheduled time.Time) string {
	return fmt.Sprintf("%s-%d", cron.Name, scheduled.Unix()/60)
}

// scheduledTime returns the time for which the controller started a Job. It reports false for a Job
// that another client created, as "kubectl create job --from" does.
func scheduledTime(cron *batchv1.CronJob, job *batchv1.Job) (time.Time, bool) {
	scheduled, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	return scheduled, err == nil && job.Name == jobName(cron, scheduled)
}
