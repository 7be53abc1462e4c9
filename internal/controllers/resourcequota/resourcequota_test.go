// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/quota"
)

var key = client.ObjectKey{Namespace: "app", Name: "q"}

// amounts parses a list such as "cpu=1 memory=1Gi".
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for item := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(item, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

// written is the inverse of amounts, sorted by name.
func written(list corev1.ResourceList) string {
	var out []string
	for name, quantity := range list {
		out = append(out, string(name)+"="+quantity.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func limit(hard string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: corev1.ResourceQuotaSpec{Hard: amounts(hard)}}
}

func pod(namespace, name, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "a", Resources: corev1.ResourceRequirements{Requests: amounts("cpu=" + cpu)}},
	}}}
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func becomes(t *testing.T, w *controltest.World, want string) {
	t.Helper()
	var got string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		q := &corev1.ResourceQuota{}
		w.Must(w.API.Get(context.Background(), key, q))
		if got = written(q.Status.Used); got == want {
			if written(q.Status.Hard) != written(q.Spec.Hard) {
				t.Errorf("limits: %s, want %s", written(q.Status.Hard), written(q.Spec.Hard))
			}
			return
		}
	}
	t.Fatalf("used\n got  %s\n want %s", got, want)
}

// TestCounts runs the controller under a manager: it counts existing, new and deleted objects.
func TestCounts(t *testing.T) {
	ctx := context.Background()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "d"}}
	w := controltest.New(t, pod("app", "a", "1"), pod("app", "b", "2"), pod("other", "c", "4"),
		configMap("app", "a"), configMap("other", "b"), deployment)
	w.Run(t, control.Controller{Name: Name, Add: Add})
	w.Must(w.API.Create(ctx, limit("requests.cpu=9 pods=9 count/pods=9 configmaps=9 count/deployments.apps=9 services.nodeports=9")))
	becomes(t, w, "configmaps=1 count/deployments.apps=1 count/pods=2 pods=2 requests.cpu=3 services.nodeports=0")

	w.Must(w.API.Delete(ctx, pod("app", "a", "1")))
	becomes(t, w, "configmaps=1 count/deployments.apps=1 count/pods=1 pods=1 requests.cpu=2 services.nodeports=0")
	ended := pod("app", "b", "2")
	w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(ended), ended))
	ended.Status.Phase = corev1.PodSucceeded
	w.Must(w.API.Status().Update(ctx, ended))
	becomes(t, w, "configmaps=1 count/deployments.apps=1 count/pods=1 pods=0 requests.cpu=0 services.nodeports=0")
	w.Must(w.API.Delete(ctx, configMap("app", "a")))
	w.Must(w.API.Delete(ctx, deployment))
	becomes(t, w, "configmaps=0 count/deployments.apps=0 count/pods=1 pods=0 requests.cpu=0 services.nodeports=0")

	// Objects that admission did not charge are counted as well.
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "s"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 1}, {Port: 2}}}}
	w.Must(w.API.Create(ctx, service))
	becomes(t, w, "configmaps=0 count/deployments.apps=0 count/pods=1 pods=0 requests.cpu=0 services.nodeports=2")

	// Changed limits are counted immediately.
	q := &corev1.ResourceQuota{}
	w.Must(w.API.Get(ctx, key, q))
	q.Spec.Hard = amounts("secrets=1 services=2")
	w.Must(w.API.Update(ctx, q))
	becomes(t, w, "secrets=0 services=1")
}

// caches returns informers without events, and records the calls.
type caches struct {
	synced bool
	asked  []string
}

func (c *caches) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	name := fmt.Sprintf("%T", obj)
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		name = "metadata of " + m.Kind
	}
	c.asked = append(c.asked, name)
	return informer{caches: c}, nil
}

func (c *caches) RemoveInformer(_ context.Context, obj client.Object) error {
	c.asked = append(c.asked, "no more "+obj.GetObjectKind().GroupVersionKind().Kind)
	return nil
}

type informer struct {
	cache.Informer
	caches *caches
}

func (i informer) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return registration{caches: i.caches}, nil
}

type registration struct {
	toolscache.ResourceEventHandlerRegistration
	caches *caches
}

func (r registration) HasSynced() bool { return r.caches.synced }

func reconcileOnce(t *testing.T, w *controltest.World, r *reconciler) (used string, again time.Duration) {
	t.Helper()
	w.Sync()
	result, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key})
	w.Must(err)
	q := &corev1.ResourceQuota{}
	w.Must(w.API.Get(context.Background(), key, q))
	return written(q.Status.Used), result.RequeueAfter
}

// TestWatchesCountedKinds: each kind that a quota counts has one watch, and no other kind has one.
// The watch ends when its CRD is deleted.
func TestWatchesCountedKinds(t *testing.T) {
	w := controltest.New(t, limit("requests.cpu=1 pods=1 count/configmaps=1 configmaps=1 count/deployments.apps=1"), configMap("app", "a"))
	c := &caches{synced: true}
	r := newReconciler(w.Env(), c)
	for range 2 {
		used, again := reconcileOnce(t, w, r)
		if used != "configmaps=1 count/configmaps=1 count/deployments.apps=0 pods=0 requests.cpu=0" || again != resync {
			t.Errorf("%s, requeued after %v", used, again)
		}
	}
	slices.Sort(c.asked)
	if diff := cmp.Diff([]string{"*v1.Pod", "metadata of ConfigMap", "metadata of Deployment"}, c.asked); diff != "" {
		t.Error(diff)
	}
	c.asked = nil
	for _, name := range []string{"foos.example.com", "deployments.apps"} {
		crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		r.crdHandler().Delete(t.Context(), event.DeleteEvent{Object: crd}, nil)
	}
	if diff := cmp.Diff([]string{"no more Deployment"}, c.asked); diff != "" {
		t.Error(diff)
	}
}

// serve makes discovery return the resource things in one version, or in none.
func serve(w *controltest.World, version string) {
	w.Served.Resources = slices.DeleteFunc(w.Served.Resources, func(l *metav1.APIResourceList) bool {
		return strings.HasPrefix(l.GroupVersion, "example.com/")
	})
	if version == "" {
		return
	}
	w.Served.Resources = append(w.Served.Resources, &metav1.APIResourceList{GroupVersion: "example.com/" + version, APIResources: []metav1.APIResource{
		{Name: "things", SingularName: "thing", Kind: "Thing" + version, Namespaced: true, Verbs: verbs},
	}})
}

// TestFollowsTheServedVersion: the watch of a version that is no longer served ends, and a watch of
// the new version starts, even if discovery lags behind the change.
func TestFollowsTheServedVersion(t *testing.T) {
	w := controltest.New(t, limit("count/things.example.com=1"))
	serve(w, "v1")
	c := &caches{}
	r := newReconciler(w.Env(), c)
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}}
	changed := func() { r.crdHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: crd, ObjectNew: crd}, nil) }
	for _, step := range []struct {
		name string
		do   func()
		want string // calls of the cache
	}{
		{"served", func() {}, "metadata of Thingv1"},
		{"unchanged", func() { w.Clock.Step(time.Second) }, ""},
		{"no discovery without a reason", func() { serve(w, "v2"); w.Clock.Step(time.Second) }, ""},
		{"CRD changed", func() { changed() }, "no more Thingv1, metadata of Thingv2"},
		{"CRD changed, discovery lags", func() { changed(); reconcileOnce(t, w, r); w.Clock.Step(5 * time.Second); serve(w, "v3") }, "no more Thingv2, metadata of Thingv3"},
		{"version changed without a CRD event, until the resync", func() { w.Clock.Step(crdServedWithin); reconcileOnce(t, w, r); serve(w, "v4"); w.Clock.Step(resync) }, "no more Thingv3, metadata of Thingv4"},
		{"CRD deleted", func() { serve(w, ""); changed(); w.Clock.Step(countDelay) }, "no more Thingv4"},
		{"CRD deleted, discovery lags", func() {
			r.crdHandler().Delete(t.Context(), event.DeleteEvent{Object: crd}, nil)
			serve(w, "v4")
			reconcileOnce(t, w, r)
			serve(w, "")
			w.Clock.Step(countDelay)
		}, "metadata of Thingv4, no more Thingv4"},
	} {
		c.asked = nil
		step.do()
		reconcileOnce(t, w, r)
		if got := strings.Join(c.asked, ", "); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// TestKindIsRemovedWhileCounted: a read of a kind whose informer was just removed would start a new
// informer, and wait for it forever.
func TestKindIsRemovedWhileCounted(t *testing.T) {
	w := controltest.New(t, configMap("app", "a"))
	c, resource := &caches{synced: true}, corev1.Resource("configmaps")
	r := newReconciler(w.Env(), c)
	if _, err := r.watches.watch(t.Context(), resource); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	slow := interceptor.NewClient(w.API, interceptor.Funcs{List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		go func() {
			defer close(ended)
			if err := r.watches.end(t.Context(), resource); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-ended:
			t.Error("the watch ended during a read")
		case <-time.After(50 * time.Millisecond):
		}
		return api.List(ctx, list, opts...)
	}})
	if objects, err := r.watches.list(t.Context(), slow, resource, "app"); err != nil || len(objects) != 1 {
		t.Errorf("%v, %v", objects, err)
	}
	<-ended
	// A new watch has not synced yet.
	c.synced = false
	if _, err := r.watches.watch(t.Context(), resource); err != nil {
		t.Fatal(err)
	}
	if _, err := r.watches.list(t.Context(), w.API, resource, "app"); !errors.Is(err, errUnserved) {
		t.Errorf("read before the watch has synced: %v", err)
	}
}

// TestWholeObjects: the controller watches whole objects of each kind that is not counted by its
// metadata alone.
func TestWholeObjects(t *testing.T) {
	w := controltest.New(t)
	for _, e := range quota.Evaluators(nil, w.Clock, nil) {
		_, err := e.Usage(&metav1.PartialObjectMetadata{})
		if object, _ := fullTypes(e.GroupResource()); (object != nil) != (err != nil) {
			t.Errorf("%s: reads %T, counted by metadata: %v", e.GroupResource(), object, err)
		}
	}
}

// TestUncountableKeepsUsage: a resource that cannot be counted keeps its usage, and is retried.
func TestUncountableKeepsUsage(t *testing.T) {
	q := limit("pods=3 count/foos.example.com=1 count/pod=1 count/nodes=1 count/events=1")
	q.Status = corev1.ResourceQuotaStatus{Hard: amounts("pods=2"), Used: amounts("pods=2 count/foos.example.com=1 secrets=1")}
	w := controltest.New(t, q, pod("app", "a", "1"))
	c := &caches{}
	r := newReconciler(w.Env(), c)
	if used, again := reconcileOnce(t, w, r); used != "count/foos.example.com=1 pods=2 secrets=1" || again != shortDelay {
		t.Errorf("before pods are synced: %s, requeued after %v", used, again)
	}
	w.Clock.Step(watchStartTimeout)
	if used, again := reconcileOnce(t, w, r); used != "count/foos.example.com=1 pods=2" || again != watchStartTimeout {
		t.Errorf("when pods take too long: %s, requeued after %v", used, again)
	}
	c.synced = true
	if used, again := reconcileOnce(t, w, r); used != "count/foos.example.com=1 pods=2" || again != countDelay {
		t.Errorf("with pods, at first: %s, requeued after %v", used, again)
	}
	w.Clock.Step(countDelay)
	if used, again := reconcileOnce(t, w, r); used != "count/foos.example.com=1 pods=1" || again != unservedDelay {
		t.Errorf("with pods: %s, requeued after %v", used, again)
	}
	r.wakeups.crdChanged(schema.GroupResource{Group: "example.com", Resource: "foos"})
	if _, again := reconcileOnce(t, w, r); again != shortDelay {
		t.Errorf("after a CRD has changed: requeued after %v", again)
	}
	w.Clock.Step(crdServedWithin)
	if _, again := reconcileOnce(t, w, r); again != unservedDelay {
		t.Errorf("long after: requeued after %v", again)
	}
	if diff := cmp.Diff([]string{"*v1.Pod"}, c.asked); diff != "" {
		t.Errorf("watched: %s", diff)
	}
}

// TestCharges: a charge of admission is not removed before the cache can have the object, unless an
// object is known to be deleted.
func TestCharges(t *testing.T) {
	q := limit("pods=3")
	q.Status = corev1.ResourceQuotaStatus{Hard: amounts("pods=3"), Used: amounts("pods=1")}
	w := controltest.New(t, q)
	r := newReconciler(w.Env(), &caches{synced: true})
	is := func(when, want string, wantAgain time.Duration) {
		t.Helper()
		if used, again := reconcileOnce(t, w, r); used != want || again != wantAgain {
			t.Errorf("%s: %s, requeued after %v", when, used, again)
		}
	}
	is("charged", "pods=1", countDelay)
	w.Clock.Step(countDelay / 2)
	is("a moment later", "pods=1", countDelay/2)

	now := &corev1.ResourceQuota{}
	w.Must(w.API.Get(context.Background(), key, now))
	now.Status.Used = amounts("pods=2")
	w.Must(w.API.Status().Update(context.Background(), now))
	w.Clock.Step(countDelay / 2)
	is("charged again", "pods=2", countDelay)
	w.Clock.Step(countDelay)
	is("long after", "pods=0", resync)

	w.Must(w.API.Get(context.Background(), key, now))
	now.Status.Used = amounts("pods=1")
	w.Must(w.API.Status().Update(context.Background(), now))
	r.wakeups.free(key)
	is("gone", "pods=0", resync)
}

// TestWrites: an unchanged usage is not written, and a conflict is retried.
func TestWrites(t *testing.T) {
	w := controltest.New(t, limit("pods=3"), pod("app", "a", "1"))
	r := newReconciler(w.Env(), &caches{synced: true})
	writes := 0
	conflict := apierrors.NewConflict(corev1.Resource("resourcequotas"), "q", errors.New("changed"))
	w.Refuse = func(string, client.Object) error { writes++; return conflict }
	if _, again := reconcileOnce(t, w, r); again != shortDelay || writes != 1 {
		t.Errorf("after a conflict: requeued after %v, %d writes", again, writes)
	}
	w.Refuse = func(string, client.Object) error { writes++; return nil }
	for range 2 {
		if used, again := reconcileOnce(t, w, r); used != "pods=1" || again != resync {
			t.Errorf("%s, requeued after %v", used, again)
		}
	}
	if writes != 2 {
		t.Errorf("%d writes", writes)
	}
}

// TestWakeups: only a change of the usage wakes a quota, and only quotas that count the kind.
func TestWakeups(t *testing.T) {
	elsewhere := limit("pods=1")
	elsewhere.Namespace = "other"
	w := controltest.New(t, limit("requests.cpu=1"), elsewhere)
	r := newReconciler(w.Env(), &caches{})
	q := &delays{}
	w.Must(r.wakeups.start(t.Context(), q))
	pods, ended := r.wakeups.handler(corev1.Resource("pods")), pod("app", "a", "1")
	ended.Status.Phase = corev1.PodFailed
	for _, test := range []struct {
		name string
		do   func()
		want []string
	}{
		{"in the first list", func() { pods.OnAdd(pod("app", "a", "1"), true) }, nil},
		{"created", func() { pods.OnAdd(pod("app", "a", "1"), false) }, []string{"app/q in 1s"}},
		{"unchanged", func() { pods.OnUpdate(pod("app", "a", "1"), pod("app", "a", "1")) }, nil},
		{"ended", func() { pods.OnUpdate(pod("app", "a", "1"), ended) }, []string{"app/q in 0s"}},
		{"deleted", func() { pods.OnDelete(ended) }, []string{"app/q in 0s"}},
		{"deletion was missed", func() { pods.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: pod("other", "a", "1")}) }, []string{"other/q in 0s"}},
		{"namespace without a quota", func() { pods.OnDelete(pod("third", "a", "1")) }, nil},
		{"kind that no quota counts", func() { r.wakeups.handler(corev1.Resource("secrets")).OnDelete(configMap("app", "a")) }, nil},
	} {
		q.added = nil
		if test.do(); !slices.Equal(q.added, test.want) {
			t.Errorf("%s: %q, want %q", test.name, q.added, test.want)
		}
	}
}

// delays is a queue that records the added requests.
type delays struct {
	queue
	added []string
}

func (d *delays) AddAfter(r ctrl.Request, delay time.Duration) {
	d.added = append(d.added, fmt.Sprintf("%s in %v", r, delay))
}

func TestLimits(t *testing.T) {
	more, charged := limit("pods=2"), limit("pods=1")
	charged.Status.Used = amounts("pods=1")
	for name, test := range map[string]struct {
		now  *corev1.ResourceQuota
		want bool
	}{"other limits": {more, true}, "another status": {charged, false}} {
		if got := limits().Update(event.UpdateEvent{ObjectOld: limit("pods=1"), ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if limits().Delete(event.DeleteEvent{Object: more}) || !limits().Create(event.CreateEvent{Object: more}) {
		t.Error("a new quota must be counted, a deleted one must not")
	}
}
