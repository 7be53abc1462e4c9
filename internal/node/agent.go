// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kindred-project/kindred/internal/node/assign"
	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/deviceplugin"
	"github.com/kindred-project/kindred/internal/node/dra"
	"github.com/kindred-project/kindred/internal/node/eviction"
	"github.com/kindred-project/kindred/internal/node/garbage"
	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/mirror"
	"github.com/kindred-project/kindred/internal/node/plugins"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/podresources"
	"github.com/kindred-project/kindred/internal/node/podsapi"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/sampler"
	"github.com/kindred-project/kindred/internal/node/shutdown"
	"github.com/kindred-project/kindred/internal/node/source"
	"github.com/kindred-project/kindred/internal/node/static"
	"github.com/kindred-project/kindred/internal/node/usage"
	"github.com/kindred-project/kindred/internal/node/userns"
	"github.com/kindred-project/kindred/internal/node/volume"
	"github.com/kindred-project/kindred/internal/node/workers"
)

// Agent is one node's agent.
type Agent struct {
	options Options
	runtime cri.RuntimeService
	images  cri.ImageManagerService

	registration *registration
	pods         *workers.Set
	shutdown     *shutdown.Manager
	view         *runtime.Runtime
	cgroups      *cgroup.Manager
	plugins      *deviceplugin.Manager
	assigned     *assign.Manager
	handlers     *runtimeHandlers
	users        *userns.Manager
	swap         criconfig.Swap
	memoryQoS    criconfig.MemoryQoS
	metrics      *metrics.Metrics
	sampler      *sampler.Sampler
	loop         loop
	records      *dra.Store // of prepared claims
	static       *static.Pods
	mirrors      *mirror.Mirrors
	claims       *dra.Manager    // once Run has begun
	volumes      *volume.Manager // likewise
	unusedImages *garbage.Images
	leftPods     *garbage.Sweeper
	exists       atomic.Pointer[func(types.UID) bool] // see hasPod
	evictions    *eviction.Manager
	usage        *usage.Meter
	podsAPI      *podsapi.Server // nil if it is disabled
	ready        chan struct{}
}

// New connects to the runtime and returns the agent, which does nothing before Run.
func New(options Options) (*Agent, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(options.RootDir, 0o755); err != nil {
		return nil, fmt.Errorf("create the node's root directory: %w", err)
	}
	if err := options.layout().PrepareLogs(); err != nil {
		return nil, fmt.Errorf("create the directories of logs: %w", err)
	}
	records, err := dra.Open(options.layout().ClaimsDir())
	if err != nil {
		return nil, err
	}
	if err := checkCgroups(*options.Config.FailCgroupV1, isUnified()); err != nil {
		return nil, err
	}
	if err := checkSwap(*options.Config.FailSwapOn); err != nil {
		return nil, err
	}
	if err := options.prepareKernel(); err != nil {
		return nil, err
	}
	machine, err := readMachine(options.RootDir)
	if err != nil {
		return nil, err
	}
	options.Config = machine.limitPods(options.Config)
	if err := machine.checkReservation(options.Config); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectLimit)
	defer cancel()
	service, err := criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint(options.Endpoint).WithConnectionTimeout(options.Config.RuntimeRequestTimeout.Duration).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("the container runtime at %s does not respond: %w", options.Endpoint, err)
	}
	images, err := criclient.NewRemoteImageServiceBuilder().WithEndpoint(options.Endpoint).WithConnectionTimeout(options.Config.RuntimeRequestTimeout.Duration).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("the image service at %s does not respond: %w", options.Endpoint, err)
	}
	version, err := service.Version(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("cannot read the version of the container runtime at %s: %w", options.Endpoint, err)
	}
	driver, err := cgroupDriver(ctx, service, options.Config.CgroupDriver)
	if err != nil {
		return nil, err
	}
	cgroups, err := cgroup.New(options.CgroupParent, driver)
	if err != nil {
		return nil, err
	}
	cgroups.PodPIDs, cgroups.Quota = *options.Config.PodPidsLimit, options.quota()
	counted := metrics.New(options.Name, cgroups.Version(), options.Clock)
	cgroups.Observe = counted.CgroupOperation
	service, images = runtime.WithoutTasks(counted.Runtime(service), options.DeleteTask), counted.Images(images)
	a := &Agent{
		options: options, runtime: service, images: images, records: records, ready: make(chan struct{}),
		view:    runtime.New(service, options.Owner, options.Clock),
		cgroups: cgroups, metrics: counted,
		swap: swapOf(options.Config.MemorySwap.SwapBehavior, machine.swap),
	}
	a.sampler = a.newSampler(machine)
	counted.Register(metrics.NewStateCollector(a.state))
	if options.Requests != nil {
		counted.Register(options.Requests)
	}
	a.registration = &registration{
		options: options, changed: make(chan struct{}, 1), startup: counted.Startup(sampler.BootTime(options.Clock.Now())),
		reporter: &reporter{options: options, machine: machine, runtime: service, images: images, version: version},
	}
	a.protectMemory()
	if err := a.openResources(); err != nil {
		return nil, errors.Join(err, a.disconnect())
	}
	a.handlers = &runtimeHandlers{client: options.Client, node: a.registration.current}
	if a.users, err = userns.New(userns.Options{
		Layout: options.layout(), IDsPerPod: *options.Config.UserNamespaces.IDsPerPod,
		MaxPods: int64(options.Config.MaxPods), Supports: a.handlers.supportsUserNamespaces,
	}); err != nil {
		return nil, errors.Join(err, a.disconnect())
	}
	a.pods = workers.New(a.admit, admittedResources{a.assigned, a.earlyRefusal, counted}, a.checkResize)
	a.pods.PreemptWith(a.preempt)
	a.pods.ObserveWith(counted)
	cgroups.Active = a.pods.Active
	a.mirrors = mirror.New(mirror.Options{
		Client: options.Client, Status: podStatus{client: options.Client}, Node: a.registration.current, Clock: options.Clock,
	})
	a.static = a.newStatic()
	a.podsAPI = a.newPodsAPI()
	a.pods.OnRemoved(a.podRemoved)
	a.shutdown = shutdown.New(shutdown.Options{
		Config: &options.Config.KubeletConfiguration, Connect: shutdown.Connect, Pods: a.pods, Clock: options.Clock,
		Changed: a.registration.check, Event: a.nodeEvent, Observe: counted.ShuttingDown,
	})
	a.registration.reporter.shutdown = a.shutdown.Problem
	return a, a.watchPressure()
}

// Ready is closed once the node is ready: in the API, if it has one.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Lookup returns the finder of the node's pods and containers. It finds them once Run has begun.
func (a *Agent) Lookup() pod.Lookup { return lookup{pods: a.pods, runtime: a.view} }

// CheckpointDir is where checkpoints of containers are written.
func (a *Agent) CheckpointDir() string {
	return a.options.layout().CheckpointsDir()
}

// Runtime returns the client of the node's runtime.
func (a *Agent) Runtime() cri.RuntimeService { return a.runtime }

// Run runs the node until ctx ends. Containers keep running: the next agent with the same options
// takes them over. Run must be called only once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithName("node")))
	defer cancel()
	if text, err := a.options.Config.Text(); err == nil {
		klog.FromContext(ctx).Info("Effective KubeletConfiguration", "config", text)
	}
	a.setOOMScore(ctx)
	stopEvents := a.recordEvents(ctx)
	defer stopEvents()

	factory := informers.NewSharedInformerFactory(a.options.Client, 0)
	parts := a.assemble(ctx, factory)
	a.registration.begin(ctx)
	a.pods.Start(ctx, parts)

	var running sync.WaitGroup
	running.Go(func() { a.view.Watch(ctx, a.pods.RuntimeChanged) })
	running.Go(func() { a.enforceAllocatable(ctx) })
	running.Go(func() { a.shareCPU(ctx) })
	running.Go(func() { a.usage.Run(ctx) })
	running.Go(func() { a.evictions.Run(ctx) })
	running.Go(func() { a.watchOOM(ctx) })
	running.Go(func() { a.plugins.Run(ctx) })
	running.Go(func() { a.assigned.Run(ctx) })
	running.Go(func() { a.runStatic(ctx) })
	a.runPodsAPI(ctx, &running)
	ready := make(chan struct{})
	running.Go(func() { a.shutdown.Run(ctx) })
	if a.options.alone {
		running.Go(func() { a.registration.keepStatus(ctx, sync.OnceFunc(func() { close(ready) })) })
		running.Go(func() { a.keepPods(ctx, ready, func(types.UID) bool { return false }) })
	} else {
		factory.StartWithContext(ctx)
		a.join(ctx, &running, ready)
	}

	<-ctx.Done()
	running.Wait()
	a.pods.Wait(a.options.Clock.After(leaveLimit))
	return a.disconnect()
}

// join registers the node and starts what needs the API.
func (a *Agent) join(ctx context.Context, running *sync.WaitGroup, ready chan struct{}) {
	a.registration.register(ctx)
	a.claims.WipeAll(ctx)
	running.Go(func() { a.claims.Run(ctx) })
	running.Go(func() { a.volumes.CSI().Run(ctx) })
	running.Go(func() { a.registerDrivers(ctx) })
	running.Go(func() { a.sampler.Run(ctx) })
	running.Go(func() {
		server := &podresources.Server{
			Lookup: a.Lookup(), Claims: a.claims.Resources, Clock: a.options.Clock,
			Resources: a.assigned.Resources, Allocatable: a.assigned.AllocatableResources, Requested: a.metrics.PodResourcesRequest,
		}
		server.Run(ctx, a.options.layout().PodResourcesSocket())
	})
	running.Go(func() { a.registration.keepLease(ctx) })
	running.Go(func() { a.watchSelf(ctx) })
	running.Go(func() { a.registration.keepStatus(ctx, sync.OnceFunc(func() { close(ready) })) })
	running.Go(func() { a.watchPods(ctx, ready) })
}

// registerDrivers registers the drivers on the node.
func (a *Agent) registerDrivers(ctx context.Context) {
	watcher := plugins.New(plugins.Options{
		Dir: a.options.layout().RegistryDir(), Clock: a.options.Clock,
		Handlers: map[string]plugins.Handler{registerapi.CSIPlugin: a.volumes.CSI(), registerapi.DRAPlugin: a.claims, registerapi.DevicePlugin: a.plugins},
	})
	if err := watcher.Run(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Drivers cannot register on this node")
	}
}

// disconnect closes the connections to the runtime, which ends calls that are still waiting.
func (a *Agent) disconnect() error {
	ctx := context.Background()
	return errors.Join(a.runtime.Close(ctx), a.images.Close(ctx))
}

// recordEvents sets up the event recorder, and returns the function that stops it.
func (a *Agent) recordEvents(ctx context.Context) (stop func()) {
	stop = func() {}
	if a.options.Recorder == nil {
		broadcaster := record.NewBroadcaster(record.WithContext(ctx))
		if a.options.alone {
			broadcaster.StartStructuredLogging(0)
		} else {
			broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.options.Client.CoreV1().Events("")})
		}
		a.options.Recorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: a.options.Name})
		stop = broadcaster.Shutdown
	}
	node := &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: a.options.Name, UID: types.UID(a.options.Name)}
	a.registration.record = func(eventType, reason, message string) {
		a.options.Recorder.Event(node, eventType, reason, message)
	}
	a.evictions.Record(a.options.Recorder, node)
	a.registration.record(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	return stop
}

// watchSelf watches the Node object, whose labels and taints admission checks.
func (a *Agent) watchSelf(ctx context.Context) {
	informer := coreinformers.NewFilteredNodeInformer(a.options.Client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", a.options.Name).String()
	})
	seen := func(object any) {
		if node := object.(*v1.Node); node.Name == a.options.Name {
			a.registration.observe(node)
			a.volumes.CSI().NodeChanged()
		}
	}
	a.handle(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, object any) { seen(object) },
	})
	informer.RunWithContext(ctx)
}

// watchPods watches the pods that are bound to the node. Once all are known it takes over the pods of
// the runtime, and from then on compares API and runtime periodically and removes garbage.
func (a *Agent) watchPods(ctx context.Context, ready <-chan struct{}) {
	inRuntime, err := a.podsInRuntime(ctx)
	if err != nil {
		return // ctx ended
	}
	informer := coreinformers.NewFilteredPodInformer(a.options.Client, v1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", a.options.Name).String()
	})
	seen := a.handle(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { a.podSeen(object.(*v1.Pod), inRuntime) },
		UpdateFunc: func(before, object any) {
			if old := before.(*v1.Pod); old.UID != object.(*v1.Pod).UID {
				a.podDeleted(old) // deleted and recreated between two events of the watch
			}
			a.podSeen(object.(*v1.Pod), inRuntime)
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if p, ok := object.(*v1.Pod); ok {
				a.podDeleted(p)
			}
		},
	})
	go informer.RunWithContext(ctx)
	if seen == nil || !cache.WaitFor(ctx, "", seen) {
		return
	}
	inAPI := func(uid types.UID) bool {
		for _, object := range informer.GetStore().List() {
			if object.(*v1.Pod).UID == uid {
				return true
			}
		}
		return false
	}
	go a.mirrors.Run(ctx)
	a.keepPods(ctx, ready, inAPI)
}

// keepPods removes what pods left that no longer exist, and from then on compares the pods with the runtime periodically.
func (a *Agent) keepPods(ctx context.Context, ready <-chan struct{}, inAPI func(types.UID) bool) {
	select {
	case <-a.static.Adopted():
	case <-ctx.Done():
		return
	}
	exists := func(uid types.UID) bool { return inAPI(uid) || a.static.Holds(uid) }
	a.relist(ctx, exists)
	a.exists.Store(&exists)
	var collecting sync.WaitGroup
	defer collecting.Wait()
	collecting.Go(func() { a.leftPods.Run(ctx) })
	collecting.Go(func() { a.unusedImages.Run(ctx) })
	select {
	case <-ctx.Done():
		return
	case <-ready:
		close(a.ready)
	}
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) { a.relist(ctx, exists) }, relistPeriod, relistJitter, true)
}

// podsInRuntime returns the pods that the runtime had when the agent started. It retries until it succeeds or ctx ends.
func (a *Agent) podsInRuntime(ctx context.Context) (map[types.UID]*runtime.Pod, error) {
	for {
		pods, err := a.view.List(ctx)
		if err == nil {
			return pods, nil
		}
		klog.FromContext(ctx).Error(err, "Cannot list the pods of the runtime, will retry")
		if !a.registration.pause(ctx, registerRetry) {
			return nil, ctx.Err()
		}
	}
}

// podSeen takes a pod of the API. Mirror pods show static pods, and are not run.
func (a *Agent) podSeen(p *v1.Pod, inRuntime map[types.UID]*runtime.Pod) {
	if source.IsMirror(p) {
		a.mirrors.Seen(p)
		return
	}
	a.pods.Update(fromAPI(p), inRuntime[p.UID] != nil)
}

func (a *Agent) podDeleted(p *v1.Pod) {
	if source.IsMirror(p) {
		a.mirrors.Deleted(p)
		return
	}
	a.pods.Deleted(fromAPI(p))
}

func (a *Agent) relist(ctx context.Context, exists func(types.UID) bool) {
	begin := a.options.Clock.Now()
	err := a.pods.Relist(ctx, a.view, exists)
	a.metrics.Relisted(begin, a.options.Clock.Since(begin), a.loop.entered(begin))
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot compare the pods of the API and the runtime")
	}
}

// handle registers an event handler. The checker it returns is done once the handler has seen the
// initial list.
func (a *Agent) handle(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandlerFuncs) cache.DoneChecker {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the API")
		return nil
	}
	return registration.HasSyncedChecker()
}
