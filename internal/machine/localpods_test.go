// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// However pods come, change and go, the network's informer has them in the end, and no other kind keeps it waiting.
func TestLocalPods(t *testing.T) {
	l, random := newLocalPods(), rand.New(rand.NewPCG(1, 2))
	change := func() {
		name := fmt.Sprint(random.IntN(5))
		if random.IntN(3) == 0 {
			l.Gone("default", name)
			return
		}
		l.Changed(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Status:     v1.PodStatus{PodIP: fmt.Sprint(random.Int())},
		})
	}
	state := func(pods []*v1.Pod) []string {
		var all []string
		for _, p := range pods {
			all = append(all, p.Name+" "+p.Status.PodIP)
		}
		slices.Sort(all)
		return all
	}
	factory := l.informers()
	lister := factory.Core().V1().Pods().Lister()
	factory.Core().V1().Services().Informer()
	change()
	factory.Start(t.Context().Done())
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Errorf("%v is not synced", kind)
		}
	}
	for range 500 {
		change()
	}
	var want []*v1.Pod
	for _, p := range l.pods {
		want = append(want, p)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		got, err := lister.List(labels.Everything())
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(state(want), state(got))
		if diff == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("pods (-want +got):\n%s", diff)
		}
	}
}
