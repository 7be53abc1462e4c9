// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred"
)

// owning is a running cluster with the clients that the ownership tests need.
type owning struct {
	*testing.T
	kubernetes.Interface
	dynamic dynamic.Interface
	crds    apiextensions.CustomResourceDefinitionInterface
}

func startOwning(t *testing.T, options kindred.Options) *owning {
	t.Helper()
	options.DataDir, options.NoNode = t.TempDir(), true
	cluster := startWith(t, options)
	objects, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	extensions, err := apiextensions.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &owning{t, client(t, cluster), objects, extensions.CustomResourceDefinitions()}
}

func (o *owning) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// serve creates a CRD and waits until it is established.
func (o *owning) serve(plural, kind string) schema.GroupVersionResource {
	o.Helper()
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
	_, err := o.crds.Create(o.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvr.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List", Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvr.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}, metav1.CreateOptions{})
	o.must(err)
	eventually(o.T, "the CRD is established", func(ctx context.Context) (bool, error) {
		crd, err := o.crds.Get(ctx, plural+".example.com", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	return gvr
}

// custom creates a custom resource, and retries until the API accepts it.
func (o *owning) custom(gvr schema.GroupVersionResource, kind, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	o.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(gvr.GroupVersion().String())
	object.SetKind(kind)
	object.SetName(name)
	object.SetOwnerReferences(owners)
	var created *unstructured.Unstructured
	eventually(o.T, "create "+name, func(ctx context.Context) (bool, error) {
		var err error
		created, err = o.dynamic.Resource(gvr).Namespace("default").Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return true, err
	})
	return created
}

func (o *owning) configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	o.Helper()
	created, err := o.CoreV1().ConfigMaps("default").Create(o.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	o.must(err)
	return created
}

func (o *owning) gone(gvr schema.GroupVersionResource, name string) {
	o.Helper()
	eventually(o.T, gvr.Resource+"/"+name+" is gone", func(ctx context.Context) (bool, error) {
		_, err := o.dynamic.Resource(gvr).Namespace("default").Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func (o *owning) removeConfigMap(name string, policy metav1.DeletionPropagation) {
	o.Helper()
	o.must(o.CoreV1().ConfigMaps("default").Delete(o.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}))
}

var configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")

func owner(kind schema.GroupVersionKind, o metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: ptr.To(true)}
}

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// TestARemovedKindBlocksNothing deletes a CRD while an owner in foreground deletion waits for a
// dependent with a finalizer, and for a dependent of that CRD. Other objects are collected
// meanwhile, and the owner is deleted when the finalizer is removed.
func TestARemovedKindBlocksNothing(t *testing.T) {
	o := startOwning(t, kindred.Options{})
	gvr := o.serve("gadgets", "Gadget")
	waiting := o.configMap("waiting")
	held := o.configMap("held", owner(configMapKind, waiting))
	_, err := o.CoreV1().ConfigMaps("default").Patch(t.Context(), held.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/held"]}}`), metav1.PatchOptions{})
	o.must(err)
	gadget := o.custom(gvr, "Gadget", "gadget", owner(configMapKind, waiting))
	o.configMap("of-gadget", owner(gvr.GroupVersion().WithKind("Gadget"), gadget), owner(configMapKind, waiting))

	o.removeConfigMap(waiting.Name, metav1.DeletePropagationForeground)
	o.gone(gvr, gadget.GetName())
	o.must(o.crds.Delete(t.Context(), "gadgets.example.com", metav1.DeleteOptions{}))
	removed := time.Now()

	for i := range 5 {
		other := o.configMap(fmt.Sprintf("other-%d", i))
		o.configMap(fmt.Sprintf("of-other-%d", i), owner(configMapKind, other))
		o.removeConfigMap(other.Name, metav1.DeletePropagationForeground)
		o.gone(configMapsResource, other.Name)
	}
	if took := time.Since(removed); took > 5*time.Second {
		t.Errorf("collecting five more dependents took %v", took)
	}
	got, err := o.CoreV1().ConfigMaps("default").Get(t.Context(), waiting.Name, metav1.GetOptions{})
	if err != nil || got.DeletionTimestamp == nil {
		t.Errorf("the owner of the dependent with a finalizer: %v, deletionTimestamp %v; want it to wait", err, got.DeletionTimestamp)
	}
	_, err = o.CoreV1().ConfigMaps("default").Patch(t.Context(), held.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	o.must(err)
	o.gone(configMapsResource, waiting.Name)
	o.gone(configMapsResource, "of-gadget")
}

// TestOwnersInOtherNamespaces: a dependent whose owner is in another namespace is collected,
// because its own namespace has no such owner. A cluster-scoped dependent stays. Both get
// upstream's event.
func TestOwnersInOtherNamespaces(t *testing.T) {
	o := startOwning(t, kindred.Options{})
	elsewhere, err := o.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, metav1.CreateOptions{})
	o.must(err)
	ref := owner(configMapKind, elsewhere)
	dependent := o.configMap("dependent", ref)
	wide, err := o.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "wide", OwnerReferences: []metav1.OwnerReference{ref}}}, metav1.CreateOptions{})
	o.must(err)
	o.gone(configMapsResource, "dependent")

	event := func(kind, namespace, name string, uid types.UID) corev1.Event {
		return corev1.Event{
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: uid},
			Type:           "Warning", Reason: "OwnerRefInvalidNamespace", Count: 1,
			Message: fmt.Sprintf("ownerRef [v1/ConfigMap, namespace: %s, name: elsewhere, uid: %s] does not exist in namespace %q", namespace, elsewhere.UID, namespace),
			Source:  corev1.EventSource{Component: "garbage-collector-controller"}, ReportingController: "garbage-collector-controller",
		}
	}
	want := []corev1.Event{event("ConfigMap", "default", "dependent", dependent.UID), event("Namespace", "", "wide", wide.UID)}
	var got []corev1.Event
	eventually(t, "both are reported", func(ctx context.Context) (bool, error) {
		events, err := o.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=OwnerRefInvalidNamespace"})
		if err != nil {
			return false, err
		}
		got = nil
		for _, kind := range []string{"ConfigMap", "Namespace"} {
			for _, e := range events.Items {
				if e.InvolvedObject.Kind == kind {
					e.ObjectMeta, e.FirstTimestamp, e.LastTimestamp = metav1.ObjectMeta{}, metav1.Time{}, metav1.Time{}
					got = append(got, e)
				}
			}
		}
		return len(got) >= 2, nil
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	namespace, err := o.CoreV1().Namespaces().Get(t.Context(), "wide", metav1.GetOptions{})
	if err != nil || len(namespace.OwnerReferences) != 1 || namespace.DeletionTimestamp != nil {
		t.Errorf("the cluster-scoped object: %v %v; want it left alone", err, namespace)
	}
}

// TestOneDeleteForEachDependent counts the requests during a cascade.
func TestOneDeleteForEachDependent(t *testing.T) {
	o := startOwning(t, kindred.Options{})
	const dependents = 200
	for _, test := range []struct {
		policy                metav1.DeletionPropagation
		deletes, gets, writes int
	}{
		// The owner's own DELETE is counted too.
		{metav1.DeletePropagationBackground, dependents + 1, 0, 0},
		{metav1.DeletePropagationForeground, dependents + 1, 0, 1},
		{metav1.DeletePropagationOrphan, 1, 0, dependents + 1},
	} {
		top := o.configMap("top")
		for i := range dependents {
			o.configMap(fmt.Sprintf("dependent-%d", i), owner(configMapKind, top))
		}
		before := o.requests()
		o.removeConfigMap("top", test.policy)
		want := map[string]int{"DELETE": test.deletes, "GET": test.gets, "PATCH": test.writes}
		var got map[string]int
		done := func() bool {
			got = map[string]int{"DELETE": 0, "GET": 0, "PATCH": 0}
			for verb, n := range o.requests() {
				got[verb] = n - before[verb]
			}
			return got["DELETE"] >= want["DELETE"] && got["PATCH"] >= want["PATCH"]
		}
		eventually(t, "the cascade ends", func(context.Context) (bool, error) { return done(), nil })
		time.Sleep(100 * time.Millisecond) // late requests count too
		done()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", test.policy, diff)
		}
		o.must(o.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}))
	}
}

// requests counts the requests for single ConfigMaps, by verb.
func (o *owning) requests() map[string]int {
	o.Helper()
	text, err := o.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(o.Context())
	o.must(err)
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="configmaps"`) || !strings.Contains(line, `scope="resource"`) {
			continue
		}
		for _, verb := range []string{"DELETE", http.MethodGet, http.MethodPatch} {
			if strings.Contains(line, `verb="`+verb+`"`) {
				var n float64
				_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n)
				o.must(err)
				counts[verb] += int(n)
			}
		}
	}
	return counts
}

// TestReplicaSetsWithOverlappingSelectorsDoNotFight creates two ReplicaSets whose selectors match
// all pods, an orphan, a pod of another controller, and a pod that is being deleted.
func TestReplicaSetsWithOverlappingSelectorsDoNotFight(t *testing.T) {
	o := startOwning(t, kindred.Options{SimulatedNodes: 1})
	pods := o.CoreV1().Pods("default")
	web := map[string]string{"app": "web"}
	bare := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: web}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		change(pod)
		created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		o.must(err)
		return created
	}
	boss := o.configMap("boss")
	ofBoss := owner(configMapKind, boss)
	ofBoss.Controller = ptr.To(true)
	bare("theirs", func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{ofBoss} })
	bare("dying", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/held"} })
	o.must(pods.Delete(t.Context(), "dying", metav1.DeleteOptions{}))
	bare("orphan", func(*corev1.Pod) {})
	watched := o.watchControllers()

	for name, replicas := range map[string]int32{"one": 2, "two": 3} {
		_, err := o.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: web}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: web}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}},
		}, metav1.CreateOptions{})
		o.must(err)
	}
	o.controllers(map[string]int{"one": 2, "two": 3, "boss": 1, "": 1})

	// A pod whose labels change is released and replaced. When the labels match again, one of the
	// two ReplicaSets adopts it and deletes a surplus pod. The pod never has two controllers.
	mine, err := pods.Get(t.Context(), "orphan", metav1.GetOptions{})
	o.must(err)
	if len(mine.OwnerReferences) != 1 || mine.OwnerReferences[0].Kind != "ReplicaSet" {
		t.Errorf("the orphan's owners: %v", mine.OwnerReferences)
	}
	label := func(value string) {
		_, err := pods.Patch(t.Context(), "orphan", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"`+value+`"}}}`), metav1.PatchOptions{})
		o.must(err)
	}
	label("quarantine")
	o.controllers(map[string]int{"one": 2, "two": 3, "boss": 1, "": 2})
	label("web")
	o.controllers(map[string]int{"one": 2, "two": 3, "boss": 1, "": 1})

	watched(func(name string, controllers []string) {
		switch {
		case name == "dying" && len(controllers) > 0, name == "theirs" && !cmp.Equal(controllers, []string{"boss"}):
			t.Errorf("%s was changed: its controllers were %v", name, controllers)
		case name != "orphan" && len(controllers) > 1:
			t.Errorf("%s changed controllers: %v", name, controllers)
		}
	})
}

// controllers waits until each controller has the wanted number of pods.
func (o *owning) controllers(want map[string]int) {
	o.Helper()
	var diff string
	limit := time.After(time.Minute)
	for calm := 0; calm < 20; {
		calm++
		got := map[string]int{}
		pods, err := o.CoreV1().Pods("default").List(o.Context(), metav1.ListOptions{})
		o.must(err)
		for _, pod := range pods.Items {
			name := ""
			if ref := metav1.GetControllerOf(&pod); ref != nil {
				name = ref.Name
			}
			got[name]++
		}
		if diff = cmp.Diff(want, got); diff != "" {
			calm = 0
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			o.Fatalf("controllers (-want +got):\n%s", diff)
		}
	}
}

// watchControllers records the controllers of each pod from now on. The function that it returns
// returns each pod's controllers, in order.
func (o *owning) watchControllers() (each func(func(name string, controllers []string))) {
	o.Helper()
	pods, err := o.CoreV1().Pods("default").Watch(o.Context(), metav1.ListOptions{})
	o.must(err)
	had := map[string][]string{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			ref := metav1.GetControllerOf(pod)
			if all := had[pod.Name]; ref != nil && (len(all) == 0 || all[len(all)-1] != ref.Name) {
				had[pod.Name] = append(all, ref.Name)
			}
		}
	})
	return func(f func(string, []string)) {
		pods.Stop()
		reading.Wait()
		for name, controllers := range had {
			f(name, controllers)
		}
	}
}
