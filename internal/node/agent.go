// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

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

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Agent is one node's agent.
type Agent struct {
	options Options
	runtime cri.RuntimeService
	images  cri.ImageManagerService

	self  *self
	pods  *pods
	view  *runtime.Runtime
	ready chan struct{}
}

// New connects to the runtime and returns the agent. It does nothing else before Run.
func New(options Options) (*Agent, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(options.RootDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the node's root directory: %w", err)
	}
	machine, err := readMachine(options.RootDir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectLimit)
	defer cancel()
	service, err := criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint(options.Endpoint).WithConnectionTimeout(connectLimit).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("the container runtime at %s does not answer: %w", options.Endpoint, err)
	}
	images, err := criclient.NewRemoteImageServiceBuilder().WithEndpoint(options.Endpoint).WithConnectionTimeout(connectLimit).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("the image service at %s does not answer: %w", options.Endpoint, err)
	}
	version, err := service.Version(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("the container runtime at %s does not say its version: %w", options.Endpoint, err)
	}
	a := &Agent{
		options: options, runtime: service, images: images, ready: make(chan struct{}),
		view: runtime.New(service, options.Owner, options.Clock),
	}
	a.self = &self{
		options:  options,
		reporter: &reporter{options: options, machine: machine, runtime: service, images: images, version: version},
	}
	a.pods = newPods(func(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
		return admission.Check(klog.FromContext(ctx), a.self.current(), p, admission.LoadOf(others))
	})
	return a, nil
}

// Ready is closed once the API has the node as ready.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Lookup finds the node's pods and containers, once Run began.
func (a *Agent) Lookup() pod.Lookup { return lookup{pods: a.pods, runtime: a.view} }

// Runtime is the client of the node's runtime.
func (a *Agent) Runtime() cri.RuntimeService { return a.runtime }

// Run runs the node until ctx ends. Containers keep running; the next agent with the same
// options takes them over. It runs once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithName("node")))
	defer cancel()
	stopEvents := a.recordEvents(ctx)
	defer stopEvents()

	factory := informers.NewSharedInformerFactory(a.options.Client, 0)
	parts, clean := a.assemble(ctx, factory)
	a.pods.start(ctx, parts)
	factory.Start(ctx.Done())

	var running sync.WaitGroup
	running.Go(func() { a.view.Watch(ctx, a.pods.changed) })
	a.self.register(ctx)
	running.Go(func() { a.self.keepLease(ctx) })
	running.Go(func() { a.watchSelf(ctx) })
	ready := make(chan struct{})
	running.Go(func() { a.self.keepStatus(ctx, sync.OnceFunc(func() { close(ready) })) })
	running.Go(func() { a.watchPods(ctx, ready, clean) })

	<-ctx.Done()
	running.Wait()
	a.pods.wait(a.options.Clock.After(leaveLimit))
	return a.disconnect()
}

// disconnect closes the connection to the runtime, which ends calls that still wait there.
func (a *Agent) disconnect() error {
	ctx := context.Background()
	return errors.Join(a.runtime.Close(ctx), a.images.Close(ctx))
}

// recordEvents makes sure there is a recorder, and returns what ends it.
func (a *Agent) recordEvents(ctx context.Context) (stop func()) {
	stop = func() {}
	if a.options.Recorder == nil {
		broadcaster := record.NewBroadcaster(record.WithContext(ctx))
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.options.Client.CoreV1().Events("")})
		a.options.Recorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: a.options.Name})
		stop = broadcaster.Shutdown
	}
	node := &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: a.options.Name, UID: types.UID(a.options.Name)}
	a.self.record = func(eventType, reason, message string) {
		a.options.Recorder.Event(node, eventType, reason, message)
	}
	a.self.record(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	return stop
}

// watchSelf follows the Node object, whose labels and taints admission looks at.
func (a *Agent) watchSelf(ctx context.Context) {
	informer := coreinformers.NewFilteredNodeInformer(a.options.Client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", a.options.Name).String()
	})
	seen := func(object any) {
		if node := object.(*v1.Node); node.Name == a.options.Name {
			a.self.observe(node)
		}
	}
	a.handle(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, object any) { seen(object) },
	})
	informer.RunWithContext(ctx)
}

// watchPods follows the pods that are bound to the node. Once it knows them all it takes over what the
// runtime holds, and compares both from time to time.
func (a *Agent) watchPods(ctx context.Context, ready <-chan struct{}, clean func(keep func(types.UID) bool)) {
	held, err := a.held(ctx)
	if err != nil {
		return // ctx ended
	}
	informer := coreinformers.NewFilteredPodInformer(a.options.Client, v1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", a.options.Name).String()
	})
	seen := a.handle(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { a.podSeen(object.(*v1.Pod), held) },
		UpdateFunc: func(before, object any) {
			if old := before.(*v1.Pod); old.UID != object.(*v1.Pod).UID {
				a.pods.vanish(old) // deleted and created anew between two sightings
			}
			a.podSeen(object.(*v1.Pod), held)
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if p, ok := object.(*v1.Pod); ok {
				a.pods.vanish(p)
			}
		},
	})
	go informer.RunWithContext(ctx)
	if seen == nil || !cache.WaitFor(ctx, "", seen) {
		return
	}
	known := func(uid types.UID) bool {
		for _, object := range informer.GetStore().List() {
			if object.(*v1.Pod).UID == uid {
				return true
			}
		}
		return false
	}
	a.relist(ctx, known)
	clean(func(uid types.UID) bool { return known(uid) || a.pods.worker(uid) != nil })
	select {
	case <-ctx.Done():
		return
	case <-ready:
		close(a.ready)
	}
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) { a.relist(ctx, known) }, relistPeriod, relistJitter, true)
}

// held returns the pods that the runtime held when the agent began.
func (a *Agent) held(ctx context.Context) (map[types.UID]bool, error) {
	for {
		pods, err := a.view.List(ctx)
		if err == nil {
			held := map[types.UID]bool{}
			for uid := range pods {
				held[uid] = true
			}
			return held, nil
		}
		klog.FromContext(ctx).Error(err, "Cannot list what the runtime holds, will retry")
		if !a.self.pause(ctx, registerRetry) {
			return nil, ctx.Err()
		}
	}
}

func (a *Agent) podSeen(p *v1.Pod, held map[types.UID]bool) { a.pods.set(p, held[p.UID]) }

func (a *Agent) relist(ctx context.Context, known func(types.UID) bool) {
	if err := a.pods.relist(ctx, known); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot compare pods with the runtime")
	}
}

// handle calls handler for what the informer sees, and returns what says that it was called for all
// that there was in the beginning.
func (a *Agent) handle(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandlerFuncs) cache.DoneChecker {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the API")
		return nil
	}
	return registration.HasSyncedChecker()
}
