// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"
	builder "k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	definitions "github.com/kindred-project/kindred/internal/apiserver/openapi"
)

func coreTypes() *fieldTypes {
	return newFieldTypes(func() (map[string]*spec.Schema, error) {
		config := genericapiserver.DefaultOpenAPIV3Config(definitions.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(scheme.Scheme))
		return builder.BuildOpenAPIDefinitionsForResources(config, "io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Binding", "io.k8s.api.core.v1.Event", "io.k8s.api.coordination.v1.Lease")
	})
}

func podManager(t testing.TB, types managedfields.TypeConverter) *managedfields.FieldManager {
	t.Helper()
	return fieldManager(t, types, corev1.SchemeGroupVersion.WithKind("Pod"))
}

func fieldManager(t testing.TB, types managedfields.TypeConverter, kind schema.GroupVersionKind) *managedfields.FieldManager {
	t.Helper()
	manager, err := managedfields.NewDefaultFieldManager(types, scheme.Scheme, scheme.Scheme, scheme.Scheme, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

// TestFieldTypes compares the managed fields of random pods with those that upstream's converter finds.
func TestFieldTypes(t *testing.T) {
	types := coreTypes()
	upstream, err := types.converter()
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := podManager(t, types), podManager(t, upstream)
	fill := randfill.New().NilChance(.5).NumElements(0, 3).RandSource(rand.NewSource(1)).Funcs(
		func(t *metav1.TypeMeta, _ randfill.Continue) { t.APIVersion, t.Kind = "v1", "Pod" },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(100), resource.DecimalSI)
		},
		func(p *intstr.IntOrString, c randfill.Continue) { *p = intstr.FromInt32(c.Int31n(9)) },
		func(*[]metav1.ManagedFieldsEntry, randfill.Continue) {},
		func(s *string, c randfill.Continue) { *s = string(rune('a' + c.Intn(3))) }, // so that lists have duplicates
	)
	for range 300 {
		live, next := &corev1.Pod{}, &corev1.Pod{}
		fill.Fill(live)
		fill.Fill(next)
		if next.Labels == nil { // and often only a part of a pod changes
			next.Spec = live.Spec
		}
		empty := &corev1.Pod{TypeMeta: live.TypeMeta}
		want, got := live.DeepCopy(), live.DeepCopy()
		track(theirs, empty, want, "first")
		track(ours, empty, got, "first")
		compareFields(t, "created", want, got)
		nextWant, nextGot := next.DeepCopy(), next.DeepCopy()
		track(theirs, want, nextWant, "second")
		track(ours, got, nextGot, "second")
		compareFields(t, "updated", nextWant, nextGot)
	}
}

// TestCreatedFields: objects that are like others have the managed fields that they have without them.
func TestCreatedFields(t *testing.T) {
	for name, object := range map[string]struct {
		object  client.Object
		changes []func(client.Object)
	}{
		"Pod": {
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Labels: map[string]string{"app": "a"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
			}, []func(client.Object){
				func(o client.Object) { o.(*corev1.Pod).Spec.Containers[0].Name = "d" },
				func(o client.Object) { o.(*corev1.Pod).Spec.Containers[0].SecurityContext = &corev1.SecurityContext{} },
				func(o client.Object) { o.(*corev1.Pod).Spec.AutomountServiceAccountToken = new(false) },
			},
		},
		"Binding": {
			&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}},
			[]func(client.Object){
				func(o client.Object) { o.(*corev1.Binding).Target.Name = "m" },
				func(o client.Object) { o.(*corev1.Binding).Target.Name = "" },
				func(o client.Object) { o.(*corev1.Binding).Target.Kind = "" },
				func(o client.Object) { o.(*corev1.Binding).Target.UID = "u" },
			},
		},
		"Event": {
			&corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: "e"}, Type: "Normal", Reason: "r", Message: "m", EventTime: metav1.NewMicroTime(time.Unix(2, 0)),
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "n", UID: "u", ResourceVersion: "1"},
			}, []func(client.Object){
				func(o client.Object) { o.(*corev1.Event).Message = "n" },
				func(o client.Object) { o.(*corev1.Event).Message = "" },
				func(o client.Object) { o.(*corev1.Event).EventTime = metav1.MicroTime{} },
				func(o client.Object) { o.(*corev1.Event).EventTime = metav1.NewMicroTime(time.Unix(3, 4)) },
				func(o client.Object) { o.(*corev1.Event).InvolvedObject = corev1.ObjectReference{Name: "q"} },
				func(o client.Object) { o.(*corev1.Event).FirstTimestamp = metav1.NewTime(time.Unix(3, 0)) },
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			object.object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(name))
			changes := append(object.changes,
				func(client.Object) {},
				func(o client.Object) { o.SetName("another"); o.SetUID("u") },
				func(o client.Object) { o.SetLabels(map[string]string{"app": "a", "other": "b"}) },
				func(o client.Object) { o.SetOwnerReferences([]metav1.OwnerReference{{UID: "o"}}) },
				func(o client.Object) {
					o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "b", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}, Time: new(metav1.Now())}})
				},
			)
			manager := fieldManager(t, coreTypes(), corev1.SchemeGroupVersion.WithKind(name))
			fields := newCreatedFields(manager)
			for range 2 {
				for i, change := range changes {
					for _, by := range []string{"a", "b"} {
						empty, err := scheme.Scheme.New(corev1.SchemeGroupVersion.WithKind(name))
						if err != nil {
							t.Fatal(err)
						}
						empty.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(name))
						want, got := object.object.DeepCopyObject().(client.Object), object.object.DeepCopyObject().(client.Object)
						change(want)
						change(got)
						track(manager, empty, want, by)
						got = fields.set(empty, got, by).(client.Object)
						if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.ManagedFieldsEntry{}, "Time")); diff != "" {
							t.Errorf("%d, by %s (-alone +set):\n%s", i, by, diff)
						}
						entry := got.GetManagedFields()[0]
						if age := time.Since(entry.Time.Time); age < 0 || age > time.Minute {
							t.Errorf("the fields are %v old", age)
						}
						entry.FieldsV1.Raw[0] = 'x' // no other object shares it
					}
				}
			}
		})
	}
}

// TestRenew: a Lease that is renewed has the managed fields that k8s.io/apimachinery finds, and what else changes a Lease is no renewal.
func TestRenew(t *testing.T) {
	kind := coordinationv1.SchemeGroupVersion.WithKind("Lease")
	manager := fieldManager(t, coreTypes(), kind)
	at := func(seconds int64) *metav1.MicroTime { return new(metav1.NewMicroTime(time.Unix(seconds, 0))) }
	const holder, another = "kubelet", "kubectl"
	live := func(changes ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
		lease := &coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind},
			ObjectMeta: metav1.ObjectMeta{
				Name: "n", Namespace: "kube-node-lease", UID: "u", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "o"}},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n"), LeaseDurationSeconds: new(int32(40)), RenewTime: at(2)},
		}
		track(manager, &coordinationv1.Lease{TypeMeta: lease.TypeMeta}, lease, holder)
		for _, change := range changes {
			change(lease)
		}
		return lease
	}
	renewed := func(l *coordinationv1.Lease) { l.Spec.RenewTime = at(3) }
	for name, test := range map[string]struct {
		live    *coordinationv1.Lease
		change  func(*coordinationv1.Lease)
		by      string
		renewal bool
	}{
		"renewed":                  {live(), renewed, holder, true},
		"without managed fields":   {live(), func(l *coordinationv1.Lease) { renewed(l); l.ManagedFields = nil }, holder, true},
		"managed fields are reset": {live(), func(l *coordinationv1.Lease) { renewed(l); l.ManagedFields = []metav1.ManagedFieldsEntry{} }, holder, false},
		"by another":               {live(), renewed, another, false},
		"at the same time":         {live(), func(*coordinationv1.Lease) {}, holder, false},
		"a part of a microsecond later": {live(), func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = new(metav1.NewMicroTime(l.Spec.RenewTime.Add(time.Nanosecond)))
		}, holder, false},
		"for the first time": {live(func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }), renewed, holder, false},
		"never":              {live(), func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, holder, false},
		"with a label":       {live(), func(l *coordinationv1.Lease) { renewed(l); l.Labels = map[string]string{"a": "b"} }, holder, false},
		"without its owner":  {live(), func(l *coordinationv1.Lease) { renewed(l); l.OwnerReferences = nil }, holder, false},
		"longer":             {live(), func(l *coordinationv1.Lease) { renewed(l); l.Spec.LeaseDurationSeconds = new(int32(41)) }, holder, false},
		"by a new holder":    {live(), func(l *coordinationv1.Lease) { renewed(l); l.Spec.HolderIdentity = new("m") }, holder, false},
		"that another also manages": {live(func(l *coordinationv1.Lease) {
			before := l.DeepCopy()
			l.Labels = map[string]string{"a": "b"}
			track(manager, before, l, another)
		}), renewed, holder, false},
		"of which no fields are known": {live(func(l *coordinationv1.Lease) { l.ManagedFields[0].FieldsV1 = nil }), renewed, holder, false},
		"that was applied":             {live(func(l *coordinationv1.Lease) { l.ManagedFields[0].Operation = metav1.ManagedFieldsOperationApply }), renewed, holder, false},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := test.live.DeepCopy(), test.live.DeepCopy()
			test.change(want)
			test.change(got)
			track(manager, test.live, want, test.by)
			before := got.DeepCopy()
			if renewal := renew(test.live, got, test.by); renewal != test.renewal {
				t.Errorf("it is taken for a renewal: %t", renewal)
			}
			if !test.renewal {
				want = before // nothing is changed
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.ManagedFieldsEntry{}, "Time")); diff != "" {
				t.Errorf("the Lease (-k8s.io/apimachinery +renew):\n%s", diff)
			}
			if !test.renewal {
				return
			}
			if age := time.Since(got.ManagedFields[0].Time.Time); age < 0 || age > time.Minute {
				t.Errorf("the fields are %v old", age)
			}
		})
	}
}

func track(manager *managedfields.FieldManager, live, next runtime.Object, by string) {
	manager.UpdateNoErrors(live, next, by)
}

func compareFields(t *testing.T, what string, want, got *corev1.Pod) {
	t.Helper()
	if len(want.ManagedFields) == 0 {
		t.Fatalf("%s: upstream finds no managers", what)
	}
	if diff := cmp.Diff(want.ManagedFields, got.ManagedFields, cmpopts.IgnoreFields(metav1.ManagedFieldsEntry{}, "Time")); diff != "" {
		t.Fatalf("%s: managed fields (-upstream +ours):\n%s", what, diff)
	}
}

// TestFieldTypesValidate: what a client applies is validated, also after its kind is known.
func TestFieldTypesValidate(t *testing.T) {
	types := coreTypes()
	manager := podManager(t, types)
	live := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	track(manager, live.DeepCopy(), live, "first")
	for _, spec := range []map[string]any{
		{"unknown": "field"},
		{"containers": []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}},
		{"containers": "none"},
	} {
		applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}, "spec": spec}}
		if _, err := manager.Apply(live, applied, "second", false); err == nil {
			t.Errorf("%v was applied", spec)
		}
	}
}

// BenchmarkFieldTypes measures what the managed fields of a status update take, with upstream's converter and ours.
func BenchmarkFieldTypes(b *testing.B) {
	types := coreTypes()
	upstream, err := types.converter()
	if err != nil {
		b.Fatal(err)
	}
	live := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			Volumes:    []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
			Containers: []corev1.Container{{Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/t"}}}},
		},
	}
	for name, converter := range map[string]managedfields.TypeConverter{"upstream": upstream, "ours": types} {
		b.Run(name, func(b *testing.B) {
			manager := podManager(b, converter)
			track(manager, &corev1.Pod{TypeMeta: live.TypeMeta}, live, "first")
			b.ReportAllocs()
			for b.Loop() {
				next := live.DeepCopy()
				next.Status.Phase = corev1.PodRunning
				track(manager, live, next, "second")
			}
		})
	}
}

// TestBuildersAreApart: several groups' types are built at once, at the first writes after a start.
func TestBuildersAreApart(t *testing.T) {
	var g genericapiserver.Config
	server.describe(&g, server.openAPIDefinitions())
	var builds sync.WaitGroup
	for range 4 {
		builds.Go(func() {
			models, err := builder.BuildOpenAPIDefinitionsForResources(definitions.Apart(g.OpenAPIV3Config), "io.k8s.api.core.v1.Pod")
			if err != nil || len(models) == 0 {
				t.Errorf("%d models, %v", len(models), err)
			}
		})
	}
	builds.Wait()
}
