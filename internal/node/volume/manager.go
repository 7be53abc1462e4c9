// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/clock"
	utilexec "k8s.io/utils/exec"
	"k8s.io/utils/keymutex"

	"github.com/kindred-project/kindred/internal/mounts"
	"github.com/kindred-project/kindred/internal/node/csi"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// Objects reads the objects that a pod refers to, until Release. Package objects implements it.
type Objects interface {
	ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error)
	Release(pod types.UID)
}

// Options are what volumes depend on.
type Options struct {
	// Layout has the directories of pods. Their file system must allow mounts.
	Layout rootdir.Layout
	// Client issues service account tokens and reads trust bundles.
	Client  kubernetes.Interface
	Objects Objects
	Clock   clock.WithTicker
	// Allocatable returns the node's allocatable resources: the limit of memory volumes, and the
	// default of missing limits.
	Allocatable func() v1.ResourceList
	// RecursiveReadOnly reports whether the pod's runtime handler supports recursively read-only mounts. Nil: none does.
	RecursiveReadOnly func(pod *v1.Pod) bool
	// NoImages is why the runtime cannot mount images; nil if it can.
	NoImages error
	// Failed is called, if set, after a failed refresh, with an error as from Prepare. The refresh
	// is retried.
	Failed func(pod *v1.Pod, err error)
	// NodeLabels returns the labels of the Node object, for the node affinity of persistent volumes. Nil:
	// it has none.
	NodeLabels func() map[string]string
	// LoopFiles is the directory of files that block volumes may have as their devices; "" if none may.
	LoopFiles string
	// Event records an event, if set.
	Event func(object *v1.ObjectReference, eventType, reason, message string)
	// Observe is called, if set, after an operation on a volume of a plugin, both as upstream names them.
	Observe func(plugin, operation string, took time.Duration, err error)
	// CSI are the options for volumes of CSI drivers. Token and Own are set by New. Nil: the node has no
	// CSI drivers.
	CSI *csi.Options
}

// Manager prepares volumes and refreshes their content. It implements pod.Volumes.
type Manager struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[types.UID]
	mounter mountutils.Interface
	exec    utilexec.Interface
	// sharing has a lock for each persistent volume, because what one pod tears down another may set up.
	sharing keymutex.KeyMutex
	csi     *csi.Manager

	mu   sync.Mutex
	pods map[types.UID]*podState
}

const (
	retryMin = time.Second
	retryMax = 2 * time.Minute
	// refreshers is the number of pods that are refreshed concurrently: a driver may be slow.
	refreshers = 4
)

// New returns a Manager. Run refreshes its volumes.
func New(options Options) *Manager {
	if options.NodeLabels == nil {
		options.NodeLabels = func() map[string]string { return nil }
	}
	m := &Manager{
		options: options,
		mounter: mountutils.New(""),
		exec:    utilexec.New(),
		sharing: keymutex.NewHashed(0),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryMin, retryMax),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: options.Clock}),
		pods: map[types.UID]*podState{},
	}
	if options.CSI != nil {
		drivers := *options.CSI
		drivers.Token, drivers.Own = m.csiToken, ownData
		m.csi = csi.New(drivers)
	}
	return m
}

// Run refreshes volumes until ctx ends: after Changed, and before a token or certificate expires.
func (m *Manager) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, m.queue.ShutDown)
	defer stop()
	var all sync.WaitGroup
	for range refreshers {
		all.Go(func() {
			for m.refreshNext(ctx) {
			}
		})
	}
	all.Wait()
}

func (m *Manager) refreshNext(ctx context.Context) bool {
	uid, shutdown := m.queue.Get()
	if shutdown {
		return false
	}
	defer m.queue.Done(uid)
	m.refresh(ctx, uid)
	return true
}

// Changed requests a refresh, because an object that the pod refers to has changed.
func (m *Manager) Changed(uid types.UID) { m.queue.Add(uid) }

// Prepare implements pod.Volumes. A second call refreshes, which updates downwardAPI volumes after a
// change of the pod's labels and annotations.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	state := m.state(pod.UID)
	state.mu.Lock()
	defer state.mu.Unlock()
	if err := m.prepare(ctx, pod); err != nil {
		return err
	}
	state.setPod(pod)
	return nil
}

// prepare makes all volumes present that containers use. The caller holds the pod's lock.
func (m *Manager) prepare(ctx context.Context, pod *v1.Pod) error {
	var again time.Time
	var failed failures
	deadline := m.after(csi.AttachLimit)
	for _, spec := range m.resolveAll(ctx, pod, &failed) {
		if err := ctx.Err(); err != nil {
			return err
		}
		due, err := m.prepareOne(ctx, pod, spec, deadline)
		if err != nil {
			failed.add(spec.Name, m.eventName(pod, spec), err)
			continue
		}
		again = earliest(again, due)
	}
	if !again.IsZero() {
		m.queue.AddAfter(pod.UID, again.Sub(m.options.Clock.Now()))
	}
	return failed.err()
}

// resolveAll returns the volumes that containers use, without those whose claims cannot be used.
func (m *Manager) resolveAll(ctx context.Context, pod *v1.Pod, failed *failures) []*v1.Volume {
	mounted, mapped := used(pod)
	var resolved []*v1.Volume
	for i := range pod.Spec.Volumes {
		spec := &pod.Spec.Volumes[i]
		if !mounted[spec.Name] && !mapped[spec.Name] {
			continue
		}
		err := m.resolveOne(ctx, pod, spec)
		if m.isMountedAlready(pod, err) {
			klog.FromContext(ctx).Error(err, "Cannot read the claim of a volume in use", "pod", klog.KObj(pod), "volume", spec.Name)
			continue
		}
		if err != nil {
			failed.add(spec.Name, m.eventName(pod, spec), err)
			continue
		}
		resolved = append(resolved, spec)
	}
	return resolved
}

// isMountedAlready reports whether an error is only that the claim of a running pod cannot be read now. The pod
// keeps the volume, whatever happens to the claim.
func (m *Manager) isMountedAlready(pod *v1.Pod, err error) bool {
	return errors.As(err, &unresolved{}) && m.state(pod.UID).pod != nil
}

// resolveOne resolves a claim, checks that the pod may use the volume on this node, and refers to it.
func (m *Manager) resolveOne(ctx context.Context, pod *v1.Pod, spec *v1.Volume) error {
	if claimOf(pod, spec) != "" {
		b, err := m.resolve(ctx, pod, spec)
		if err != nil {
			return err
		}
		m.state(pod.UID).bind(spec.Name, b)
		if err := m.checkBound(pod, b); err != nil {
			return err
		}
	}
	return m.refer(ctx, pod, spec)
}

// eventName returns the name of a volume in events.
func (m *Manager) eventName(pod *v1.Pod, spec *v1.Volume) string {
	if b, ok := m.state(pod.UID).boundTo(spec.Name); ok {
		return b.pv.Name
	}
	return spec.Name
}

// prepareOne prepares a volume, once it is attached. It does not wait for that after the deadline.
func (m *Manager) prepareOne(ctx context.Context, pod *v1.Pod, spec *v1.Volume, deadline time.Time) (again time.Time, err error) {
	v, err := m.open(pod, spec)
	if err != nil {
		return time.Time{}, err
	}
	if a, ok := v.(attachable); ok {
		if err := m.measured(pod, spec, opAttached, func() error { return a.attach(ctx, deadline) }); err != nil {
			return time.Time{}, err
		}
	}
	operation := opMount
	if _, mapped := used(pod); mapped[spec.Name] {
		operation = opMap
	}
	err = m.measured(pod, spec, operation, func() error {
		again, err = v.prepare(ctx)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	if _, grows := v.(expandable); grows && claimOf(pod, spec) != "" {
		again = earliest(again, m.after(republishPeriod))
	}
	return again, m.expand(ctx, pod, spec, v)
}

// refresh prepares a pod's volumes again. If that fails, they keep their content.
func (m *Manager) refresh(ctx context.Context, uid types.UID) {
	m.mu.Lock()
	state := m.pods[uid]
	m.mu.Unlock()
	if state == nil {
		m.queue.Forget(uid)
		return
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.pod == nil {
		return // not prepared yet, or torn down
	}
	err := m.prepare(ctx, state.pod)
	if err == nil {
		m.queue.Forget(uid)
		return
	}
	if m.options.Failed != nil && ctx.Err() == nil {
		m.options.Failed(state.pod, err)
	}
	m.queue.AddRateLimited(uid)
}

// DetachContent implements pod.Volumes.
func (m *Manager) DetachContent(uid types.UID) error {
	state := m.state(uid)
	state.mu.Lock()
	defer state.mu.Unlock()
	state.pod = nil // no refresh mounts them again
	for _, kind := range []string{secretDir, projectedDir} {
		if err := mounts.DetachAt(filepath.Join(m.options.Layout.VolumesDir(uid), kind)); err != nil {
			return err
		}
	}
	return nil
}

// Teardown implements pod.Volumes.
func (m *Manager) Teardown(ctx context.Context, uid types.UID) error {
	state := m.state(uid)
	state.mu.Lock()
	defer state.mu.Unlock()
	var had []usedVolume
	if state.pod != nil {
		had = m.volumesOf(state.pod)
	}
	state.setPod(nil)
	m.options.Objects.Release(uid)
	begin := m.options.Clock.Now()
	err := m.remove(ctx, uid)
	for _, v := range had {
		m.observe(v.plugin, v.removal(), m.options.Clock.Since(begin), err)
	}
	if err != nil {
		return fmt.Errorf("volumes of pod %s cannot be removed: %w", uid, err)
	}
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
	return nil
}

// remove deletes a pod's volumes from disk. It first unmounts the volumes whose data outlives the pod, and fails
// if one of them is in use. Then it detaches all other mounts, so that no mounted file is ever deleted.
func (m *Manager) remove(ctx context.Context, uid types.UID) error {
	subpaths, volumes := m.options.Layout.SubpathsDir(uid), m.options.Layout.VolumesDir(uid)
	if err := mounts.UnmountAt(subpaths); err != nil {
		return err
	}
	if err := mounts.RemoveAll(subpaths); err != nil {
		return err
	}
	if err := m.teardownData(ctx, uid); err != nil {
		return err
	}
	if err := mounts.DetachAt(volumes); err != nil {
		return err
	}
	return mounts.RemoveAll(volumes)
}

// RemoveOrphans removes the volumes and directories of all pods on disk but those to keep. An agent
// calls it at its start, for pods that were deleted while no agent ran.
func (m *Manager) RemoveOrphans(ctx context.Context, keep func(types.UID) bool) error {
	entries, err := os.ReadDir(m.options.Layout.PodsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		if !entry.IsDir() || keep(uid) {
			continue
		}
		if err := m.Teardown(ctx, uid); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := mounts.RemoveAll(m.options.Layout.PodDir(uid)); err != nil {
			errs = append(errs, err)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// OpenFile opens a file of a prepared volume for reading. The path cannot leave the volume.
func (m *Manager) OpenFile(uid types.UID, name, path string) (io.ReadCloser, error) {
	m.mu.Lock()
	state := m.pods[uid]
	m.mu.Unlock()
	if state == nil {
		return nil, fmt.Errorf("pod %s has no prepared volumes", uid)
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.pod == nil {
		return nil, fmt.Errorf("pod %s has no prepared volumes", uid)
	}
	spec := find(state.pod, name)
	if spec == nil {
		return nil, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", name)
	}
	v, err := m.open(state.pod, spec)
	if err != nil {
		return nil, err
	}
	return openBelow(v.path(), path)
}

func (m *Manager) event(object *v1.ObjectReference, eventType, reason, message string) {
	if m.options.Event != nil {
		m.options.Event(object, eventType, reason, message)
	}
}
