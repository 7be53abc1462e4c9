// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/test/linearizability"
)

// load is what clients of all servers do while something fails: they read and write the same few objects, and create and delete
// owners with dependents.
type load struct {
	*session
	clients []kubernetes.Interface
	history linearizability.History
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu sync.Mutex
	// kept and deleted are the dependents of owners that exist, and of those that are deleted.
	kept, deleted []string
}

const (
	// sharedObjects is how many objects all clients write.
	sharedObjects = 3
	// clientTimeout is after what time a request without an answer counts as failed.
	clientTimeout = 3 * time.Second
	loadPause     = 30 * time.Millisecond
)

func newLoad(s *session, all []*cluster) *load {
	s.Helper()
	l := &load{session: s, clients: clientsOf(s.T, all, clientTimeout)}
	ctx, stop := context.WithCancel(s.Context())
	l.stop = stop
	for i := range l.clients {
		l.done.Go(func() { l.readAndWrite(ctx, i) })
		l.done.Go(func() { l.own(ctx, i) })
	}
	s.Cleanup(func() {
		stop()
		l.done.Wait()
	})
	return l
}

// clientsOf returns a client of each server.
func clientsOf(t *testing.T, all []*cluster, timeout time.Duration) (clients []kubernetes.Interface) {
	t.Helper()
	for _, c := range all {
		config := c.config(t)
		config.Timeout = timeout
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	return clients
}

// readAndWrite sends random requests to one server, until running ends.
func (l *load) readAndWrite(running context.Context, client int) {
	ctx := context.WithoutCancel(running) // an interrupted request would have no answer
	random := rand.New(rand.NewPCG(7, uint64(client)))
	last := map[string]*corev1.ConfigMap{} // as this client has read it
	for n := 0; running.Err() == nil; n++ {
		name := fmt.Sprintf("shared-%d", random.IntN(sharedObjects))
		value := fmt.Sprintf("%d-%d", client, n)
		switch i := random.IntN(20); {
		case i < 5:
			l.read(ctx, client, name, l.get, last)
		case i < 9:
			l.read(ctx, client, name, l.list, last)
		case i < 11:
			l.write(ctx, client, name, linearizability.Request{Kind: linearizability.Create, Value: value}, "")
		case i < 14:
			l.write(ctx, client, name, linearizability.Request{Kind: linearizability.Put, Value: value}, "")
		case i < 19 && last[name] != nil:
			seen := last[name]
			l.write(ctx, client, name, linearizability.Request{Kind: linearizability.Swap, Value: value, Expected: seen.Data["value"]}, seen.ResourceVersion)
		case i == 19:
			l.write(ctx, client, name, linearizability.Request{Kind: linearizability.Delete}, "")
		}
		waits(running, loadPause)
	}
}

// waits lets some time pass, unless ctx ends.
func waits(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// getter returns nil if the object does not exist.
type getter func(ctx context.Context, client int, name string) (*corev1.ConfigMap, error)

func (l *load) read(ctx context.Context, client int, name string, get getter, last map[string]*corev1.ConfigMap) {
	l.history.Do(client, name, linearizability.Request{Kind: linearizability.Read}, func() linearizability.Answer {
		found, err := get(ctx, client, name)
		if err != nil {
			return linearizability.Answer{Outcome: linearizability.Unknown}
		}
		if found == nil {
			delete(last, name)
			return linearizability.Answer{Outcome: linearizability.Done}
		}
		last[name] = found
		return linearizability.Answer{Outcome: linearizability.Done, Value: found.Data["value"]}
	})
}

func (l *load) get(ctx context.Context, client int, name string) (*corev1.ConfigMap, error) {
	found, err := l.clients[client].CoreV1().ConfigMaps(l.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// list is get by a list, which servers answer from their cache.
func (l *load) list(ctx context.Context, client int, name string) (*corev1.ConfigMap, error) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	found, err := l.clients[client].CoreV1().ConfigMaps(l.namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil || len(found.Items) == 0 {
		return nil, err
	}
	return &found.Items[0], nil
}

func (l *load) write(ctx context.Context, client int, name string, r linearizability.Request, version string) {
	objects := l.clients[client].CoreV1().ConfigMaps(l.namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}, Data: map[string]string{"value": r.Value}}
	l.history.Do(client, name, r, func() linearizability.Answer {
		var err error
		switch r.Kind {
		case linearizability.Create:
			_, err = objects.Create(ctx, object, metav1.CreateOptions{})
		case linearizability.Delete:
			err = objects.Delete(ctx, name, metav1.DeleteOptions{})
		default:
			_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
		}
		return linearizability.Answer{Outcome: outcome(err)}
	})
}

// outcome returns what an error says of a write. An error that does not tell why the write failed says nothing.
func outcome(err error) linearizability.Outcome {
	switch {
	case err == nil:
		return linearizability.Done
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return linearizability.Refused
	}
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		return linearizability.Unsent
	}
	return linearizability.Unknown
}

// own creates owners with dependents on one server, and deletes each second owner, until running ends.
func (l *load) own(running context.Context, client int) {
	ctx := context.WithoutCancel(running)
	for n := 0; running.Err() == nil; n++ {
		name := fmt.Sprintf("owner-%d-%d", client, n)
		objects := l.clients[client].CoreV1().ConfigMaps(l.namespace)
		owner, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			l.depend(ctx, client, owner, n%2 == 0)
		}
		waits(running, 5*loadPause)
	}
}

// depend creates two dependents of an owner, and deletes the owner if it is not to be kept. What fails is not counted on.
func (l *load) depend(ctx context.Context, client int, owner *corev1.ConfigMap, keep bool) {
	objects := l.clients[client].CoreV1().ConfigMaps(l.namespace)
	var names []string
	for i := range 2 {
		dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("%s-%d", owner.Name, i),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
		}}
		if _, err := objects.Create(ctx, dependent, metav1.CreateOptions{}); err == nil {
			names = append(names, dependent.Name)
		}
	}
	deleted := !keep && objects.Delete(ctx, owner.Name, metav1.DeleteOptions{}) == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case keep:
		l.kept = append(l.kept, names...)
	case deleted:
		l.deleted = append(l.deleted, names...)
	}
}

// check ends the load. What clients saw can be explained, what has an owner exists, and what had a deleted one goes.
func (l *load) check() {
	l.Helper()
	l.stop()
	l.done.Wait()
	if err := l.history.Check(2*time.Minute, l.ArtifactDir()); err != nil {
		l.Error(err)
	}
	requests, unknown := l.history.Counts()
	l.Logf("%d requests for shared objects, of which %d had no clear answer; %d dependents kept, %d deleted", requests, unknown, len(l.kept), len(l.deleted))
	if requests < 300 || len(l.kept) < 20 || len(l.deleted) < 20 {
		l.Error("this was no load")
	}
	client := clientsOf(l.T, []*cluster{l.cluster}, 0)[0]
	l.within(time.Minute, "dependents of deleted owners go, and others stay", func() error {
		exist := map[string]bool{}
		found, err := client.CoreV1().ConfigMaps(l.namespace).List(l.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, object := range found.Items {
			exist[object.Name] = true
		}
		var lost []error
		for _, name := range l.kept {
			if !exist[name] {
				lost = append(lost, fmt.Errorf("%s was collected, and has an owner", name))
			}
		}
		if len(lost) > 0 {
			l.Fatal(errors.Join(lost...))
		}
		left := 0
		for _, name := range l.deleted {
			if exist[name] {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d of %d are left", left, len(l.deleted))
		}
		return nil
	})
}
