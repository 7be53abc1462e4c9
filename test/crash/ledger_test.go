// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// namespace is the namespace in which the tests write.
const namespace = metav1.NamespaceDefault

// state is the state of an object as a client knows it; the zero value means that it does not exist.
type state struct {
	uid   types.UID
	value string
}

// ledger records the state of every object after its last acknowledged write, and the states that
// unacknowledged writes may have produced.
type ledger struct {
	mu           sync.Mutex
	acknowledged map[string]state
	unsure       map[string]state
	writes       int
}

func newLedger() *ledger {
	return &ledger{acknowledged: map[string]state{}, unsure: map[string]state{}}
}

// note records a write and its result. It reports whether the writer can continue.
func (l *ledger) note(name string, wrote state, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unsure[name] = wrote
		return false
	}
	l.acknowledged[name] = wrote
	l.writes++
	return true
}

// count returns the number of acknowledged writes.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// load is a set of clients that write continuously until they are stopped or a request fails.
type load struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// writers is the number of concurrent clients.
const writers = 6

// write starts the clients of one round. Each has objects of its own.
func (l *ledger) write(client kubernetes.Interface, random *rand.Rand, round int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	running := &load{cancel: cancel}
	for writer := range writers {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(writer)))
		running.wait.Go(func() { l.writeOwn(ctx, client, own, fmt.Sprintf("r%d-w%d", round, writer)) })
	}
	return running
}

func (r *load) stop() {
	r.cancel()
	r.wait.Wait()
}

// writeOwn creates, updates and deletes objects of one client.
func (l *ledger) writeOwn(ctx context.Context, client kubernetes.Interface, random *rand.Rand, prefix string) {
	objects := client.CoreV1().ConfigMaps(namespace)
	var mine []*corev1.ConfigMap
	for n := 0; ctx.Err() == nil; n++ {
		value := fmt.Sprintf("%s-%d", prefix, n)
		padding := strings.Repeat("x", random.IntN(4000))
		at := 0
		if len(mine) > 0 {
			at = random.IntN(len(mine))
		}
		switch draw := random.IntN(10); {
		case len(mine) == 0 || draw < 5:
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: value}, Data: map[string]string{"value": value, "padding": padding}}
			created, err := objects.Create(ctx, object, metav1.CreateOptions{})
			if err != nil {
				l.note(value, state{value: value}, err)
				return
			}
			l.note(value, state{created.UID, value}, nil)
			mine = append(mine, created)
		case draw < 8:
			object := mine[at].DeepCopy()
			object.Data = map[string]string{"value": value, "padding": padding}
			updated, err := objects.Update(ctx, object, metav1.UpdateOptions{})
			if !l.note(object.Name, state{object.UID, value}, err) {
				return
			}
			mine[at] = updated
		default:
			name := mine[at].Name
			if !l.note(name, state{}, objects.Delete(ctx, name, metav1.DeleteOptions{})) {
				return
			}
			mine = append(mine[:at], mine[at+1:]...)
		}
	}
}

// check compares stored with acknowledged objects, and resolves unacknowledged writes.
func (l *ledger) check(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	stored := map[string]state{}
	for _, object := range list.Items {
		if object.Data["value"] != "" {
			stored[object.Name] = state{object.UID, object.Data["value"]}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var wrong []error
	for name, want := range l.acknowledged {
		maybe, unsure := l.unsure[name]
		if got := stored[name]; got != want && (!unsure || got != maybe) {
			wrong = append(wrong, fmt.Errorf("%s: %v was acknowledged, and now it is %v", name, want, got))
		}
	}
	for name, got := range stored {
		_, known := l.acknowledged[name]
		if maybe, unsure := l.unsure[name]; !known && (!unsure || got.value != maybe.value) {
			wrong = append(wrong, fmt.Errorf("%s: %v was never written", name, got))
		}
	}
	for name := range l.unsure {
		l.acknowledged[name] = stored[name]
		delete(l.unsure, name)
	}
	return errors.Join(wrong...)
}
