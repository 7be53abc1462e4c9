// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// reasonContainerGCFailed is the reason of an event on the Node, as in the kubelet.
const reasonContainerGCFailed = "ContainerGCFailed"

// The pauses between two sweeps: after a success, and after the first failure. Further failures double the pause. At the
// start of the agent, drivers of volumes have not registered yet.
const (
	sweepPeriod = time.Minute
	sweepRetry  = 2 * time.Second
)

// Orphans removes what pods own, except for the pods to keep.
type Orphans func(ctx context.Context, keep func(types.UID) bool) error

// Cgroups are the cgroups of pods. Package cgroup implements it.
type Cgroups interface {
	Pods() ([]types.UID, error)
	Destroy(uid types.UID) error
}

// SweepOptions are what a Sweeper depends on.
type SweepOptions struct {
	Layout  rootdir.Layout
	Runtime *runtime.Runtime
	Cgroups Cgroups
	// Claims, Resources and Volumes remove prepared ResourceClaims, assigned CPUs, memory and devices, and volumes.
	Claims, Resources, Volumes Orphans
	// Has reports whether the node has a pod: the API has bound it to the node, or its worker has not returned. All pods
	// of the API must be known before the first sweep.
	Has func(types.UID) bool
	// Over reports whether the node has a pod and its containers have all ended for good.
	Over func(types.UID) bool
	// Changed is called after containers of a pod were removed.
	Changed func(types.UID)
	// Event records an event on the Node.
	Event func(eventType, reason, message string)
	Clock clock.Clock
}

// Sweeper removes what is left of pods that the node no longer has.
type Sweeper struct {
	options SweepOptions
}

// NewSweeper returns a Sweeper, which does nothing before Run.
func NewSweeper(options SweepOptions) *Sweeper { return &Sweeper{options: options} }

// Run sweeps until ctx ends, first at once.
func (s *Sweeper) Run(ctx context.Context) {
	for retry := sweepRetry; ; {
		pause := sweepPeriod
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot remove what orphaned pods left, will retry")
			pause, retry = min(retry, sweepPeriod), 2*retry
		} else {
			retry = sweepRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-s.options.Clock.After(pause):
		}
	}
}

// Sweep removes what is left of pods that neither the node nor the runtime has, and the files of old runs of the other
// pods. One failure does not keep it from the rest.
func (s *Sweeper) Sweep(ctx context.Context) error {
	listed, err := s.options.Runtime.List(ctx)
	if err != nil {
		return s.reported(err)
	}
	keep := func(uid types.UID) bool { return listed[uid] != nil || s.options.Has(uid) }
	logs := s.reported(errors.Join(s.removeLogs(keep), s.removeOldFiles(listed)))
	return errors.Join(
		logs,
		s.options.Claims(ctx, keep),
		s.options.Resources(ctx, keep),
		s.options.Volumes(ctx, keep),
		s.removeCgroups(keep),
	)
}

// Reclaim removes the containers, sandboxes and logs of pods that are over, and sweeps. Workers remove old runs of the
// other pods as soon as they can be spared.
func (s *Sweeper) Reclaim(ctx context.Context) error {
	listed, err := s.options.Runtime.List(ctx)
	if err != nil {
		return s.reported(err)
	}
	var errs []error
	for uid, pod := range listed {
		if s.options.Over(uid) && isSpent(pod) {
			errs = append(errs, s.removePod(ctx, pod))
		}
	}
	return errors.Join(s.reported(errors.Join(errs...)), s.Sweep(ctx))
}

// removePod removes a pod from the runtime, and its logs.
func (s *Sweeper) removePod(ctx context.Context, pod *runtime.Pod) error {
	defer s.options.Changed(pod.UID)
	var errs []error
	service := s.options.Runtime.Service()
	for _, c := range pod.Containers {
		errs = append(errs, ignoreNotFound(service.RemoveContainer(ctx, c.ID)))
	}
	for _, sandbox := range pod.Sandboxes {
		if err := ignoreNotFound(service.StopPodSandbox(ctx, sandbox.ID)); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, ignoreNotFound(service.RemovePodSandbox(ctx, sandbox.ID)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the containers of pod %s: %w", pod.UID, err)
	}
	return s.options.Layout.RemovePodLogs(s.options.Layout.PodLogsDir(pod.Namespace, pod.Name, pod.UID))
}

func ignoreNotFound(err error) error {
	if runtime.IsNotFound(err) {
		return nil
	}
	return err
}

// reported records an event about a failure, which it returns.
func (s *Sweeper) reported(err error) error {
	if err != nil {
		s.options.Event(v1.EventTypeWarning, reasonContainerGCFailed, err.Error())
	}
	return err
}

// removeLogs removes the directories of logs of pods except for those to keep.
func (s *Sweeper) removeLogs(keep func(types.UID) bool) error {
	own, err := s.options.Layout.OwnLogs()
	errs := []error{err}
	for uid, dir := range own {
		if !keep(uid) {
			errs = append(errs, s.options.Layout.RemovePodLogs(dir))
		}
	}
	return errors.Join(errs...)
}

// removeOldFiles removes the logs and termination logs of runs that the runtime no longer has.
func (s *Sweeper) removeOldFiles(listed map[types.UID]*runtime.Pod) error {
	var errs []error
	for uid, pod := range listed {
		for _, dir := range []string{
			s.options.Layout.PodLogsDir(pod.Namespace, pod.Name, uid), s.options.Layout.TerminationLogsDir(uid),
		} {
			for _, container := range entries(dir, &errs) {
				inside := filepath.Join(dir, container)
				for _, file := range leftover(entries(inside, &errs), pod.Runs(container)) {
					errs = append(errs, remove(filepath.Join(inside, file)))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// removeCgroups removes the cgroups of pods except for those to keep. The cgroup of a pod with volumes stays, because the
// memory of its volumes is charged to it.
func (s *Sweeper) removeCgroups(keep func(types.UID) bool) error {
	pods, err := s.options.Cgroups.Pods()
	errs := []error{err}
	for _, uid := range pods {
		if _, err := os.Stat(s.options.Layout.VolumesDir(uid)); keep(uid) || err == nil {
			continue
		}
		klog.Background().Info("Removing the cgroup of a pod that the node does not have", "podUID", uid)
		errs = append(errs, s.options.Cgroups.Destroy(uid))
	}
	return errors.Join(errs...)
}

// entries returns the names in a directory, none if it does not exist or is a file, and adds a failure to errs.
func entries(dir string, errs *[]error) []string {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		*errs = append(*errs, err)
	}
	names := make([]string, len(list))
	for i, entry := range list {
		names[i] = entry.Name()
	}
	return names
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
