// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// localPods shows the static pods of a node without an API to its network, which otherwise watches those of the API.
type localPods struct {
	mu      sync.Mutex
	pods    map[cache.ObjectName]*v1.Pod
	version int64
	changed chan struct{} // closed at the next change
}

func newLocalPods() *localPods {
	return &localPods{pods: map[cache.ObjectName]*v1.Pod{}, changed: make(chan struct{})}
}

// Changed implements static.Mirrors.
func (l *localPods) Changed(p *v1.Pod) {
	l.change(func() { l.pods[cache.MetaObjectToName(p)] = p })
}

// Gone implements static.Mirrors.
func (l *localPods) Gone(namespace, name string) {
	l.change(func() { delete(l.pods, cache.NewObjectName(namespace, name)) })
}

func (l *localPods) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	l.version++
	close(l.changed)
	l.changed = make(chan struct{})
}

// now returns the pods, their version, and a channel that is closed when they change.
func (l *localPods) now() (pods map[cache.ObjectName]*v1.Pod, version string, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.pods), strconv.FormatInt(l.version, 10), l.changed
}

// informers returns informers of what the network watches: these pods, and nothing else.
func (l *localPods) informers() informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(nil, 0)
	use := func(kind runtime.Object, source *cache.ListWatch) {
		factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(withoutStream{source}, kind, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		})
	}
	use(&v1.Pod{}, &cache.ListWatch{ListFunc: l.list, WatchFunc: l.watch})
	for _, kind := range []runtime.Object{
		&v1.Service{}, &v1.Node{}, &v1.Namespace{}, &discoveryv1.EndpointSlice{}, &networkingv1.ServiceCIDR{}, &networkingv1.NetworkPolicy{},
	} {
		use(kind, &cache.ListWatch{
			ListFunc: func(metav1.ListOptions) (runtime.Object, error) {
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFunc: func(metav1.ListOptions) (watch.Interface, error) {
				return watch.NewProxyWatcher(make(chan watch.Event)), nil
			},
		})
	}
	return factory
}

// withoutStream is a source that cannot send its first list as events.
type withoutStream struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what a Reflector asks.
func (withoutStream) IsWatchListSemanticsUnSupported() bool { return true }

func (l *localPods) list(metav1.ListOptions) (runtime.Object, error) {
	pods, version, _ := l.now()
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list, nil
}

// watch sends what changes after a version, which must be the current one.
func (l *localPods) watch(o metav1.ListOptions) (watch.Interface, error) {
	pods, version, changed := l.now()
	if o.ResourceVersion != version {
		return nil, apierrors.NewResourceExpired("the pods have changed since this version")
	}
	events := make(chan watch.Event)
	watcher := watch.NewProxyWatcher(events)
	go func() {
		for {
			select {
			case <-watcher.StopChan():
				return
			case <-changed:
			}
			before := pods
			pods, _, changed = l.now()
			for _, event := range difference(before, pods) {
				select {
				case <-watcher.StopChan():
					return
				case events <- event:
				}
			}
		}
	}()
	return watcher, nil
}

// difference returns the events between two states.
func difference(before, now map[cache.ObjectName]*v1.Pod) []watch.Event {
	var events []watch.Event
	for name, p := range before {
		if now[name] == nil {
			events = append(events, watch.Event{Type: watch.Deleted, Object: p})
		}
	}
	for name, p := range now {
		switch before[name] {
		case p:
		case nil:
			events = append(events, watch.Event{Type: watch.Added, Object: p})
		default:
			events = append(events, watch.Event{Type: watch.Modified, Object: p})
		}
	}
	return events
}
