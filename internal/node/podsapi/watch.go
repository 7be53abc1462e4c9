// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// queueLength is the number of events that can wait for a client. Upstream's kubelet has the same.
const queueLength = 100

// event is a change of a pod.
type event struct {
	uid types.UID
	// pod is nil if the pod has ended.
	pod *v1.Pod
	// deleted is set if the API no longer has the pod.
	deleted bool
}

// watch is one client's queue. It is closed if the client is too slow.
type watch struct {
	events chan event
}

// watches are the open watches.
type watches struct {
	count atomic.Int32
	mu    sync.Mutex
	all   map[*watch]bool
}

// open opens a watch and lists the pods. The list has each change whose event the watch does not get: events wait until the
// list is read, and a change that did not see the watch in count was made before.
func (w *watches) open(list func() []*v1.Pod) (*watch, []*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	opened := &watch{events: make(chan event, queueLength)}
	if w.all == nil {
		w.all = map[*watch]bool{}
	}
	w.all[opened] = true
	w.count.Add(1)
	return opened, list()
}

// close closes a watch unless it is closed already.
func (w *watches) close(opened *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(opened)
}

// remove closes a watch. w.mu is held.
func (w *watches) remove(opened *watch) {
	if w.all[opened] {
		delete(w.all, opened)
		close(opened.events)
		w.count.Add(-1)
	}
}

// send queues an event for each watch. It does not wait for clients: a watch whose queue is full is closed, and its client
// has to begin again. dropped is called for each.
func (w *watches) send(e event, dropped func()) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for opened := range w.all {
		select {
		case opened.events <- e:
		default:
			klog.Background().Info("Closing a watch of the Pods API whose client is too slow")
			dropped()
			w.remove(opened)
		}
	}
}

// Watched implements pod.Watcher.
func (s *Server) Watched() bool { return s.watches.count.Load() > 0 }

// PodChanged implements pod.Watcher.
func (s *Server) PodChanged(p *v1.Pod, deleted bool) {
	s.watches.send(event{uid: p.UID, pod: p, deleted: deleted}, s.dropped)
}

// PodEnded implements pod.Watcher.
func (s *Server) PodEnded(uid types.UID) { s.watches.send(event{uid: uid}, s.dropped) }

// client is the client of a watch.
type client struct {
	stream grpc.ServerStreamingServer[api.WatchPodsEvent]
	// known are the pods that the client knows, by which an event is ADDED or MODIFIED for it.
	known   map[types.UID]types.NamespacedName
	dropped func()
}

// send sends an event to the client, unless it is about a pod that the client does not know and need not learn of.
func (c *client) send(e event) error {
	name, isKnown := c.known[e.uid]
	switch {
	case e.pod == nil && isKnown:
		delete(c.known, e.uid)
		return c.sendPod(api.EventType_DELETED, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: e.uid}})
	case isKnown:
		return c.sendPod(api.EventType_MODIFIED, e.pod)
	case e.pod == nil || e.deleted:
		return nil
	}
	c.known[e.uid] = types.NamespacedName{Namespace: e.pod.Namespace, Name: e.pod.Name}
	return c.sendPod(api.EventType_ADDED, e.pod)
}

func (c *client) sendPod(kind api.EventType, p *v1.Pod) error {
	encoded, err := encode(p)
	if err != nil {
		c.dropped()
		return err
	}
	return c.stream.Send(&api.WatchPodsEvent{Type: kind, Pod: encoded})
}
