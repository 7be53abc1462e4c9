// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cronjob starts the Jobs of CronJobs at their scheduled times.
//
// A Reconcile reads a CronJob and its Jobs, and decides what to do now:
//
//	read     Jobs by owner, as fresh as this process's writes  (package owned)
//	observe  the status: active Jobs, last start, last success (observe.go, pure)
//	report   write that status                                 (controller.go)
//	decide   whether a time is due, and what the policies say  (decide.go, pure)
//	start    delete replaced Jobs, create the Job, report      (act.go)
//	trim     delete Jobs beyond the history limits             (history.go, pure)
//
// A Job's name contains its scheduled time, so that a time has at most one Job. Each crash between
// two writes is safe. If the process dies after it created a Job and before it reported it,
// observe finds the Job by its name, and adds it to the status before any Job is deleted.
//
// CronJobs are requeued for their next time. Delays do not follow jumps of the wall clock, so jump.go
// watches for them.
package cronjob
