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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"
	builder "k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/randfill"

	definitions "github.com/kindred-project/kindred/internal/apiserver/openapi"
)

func podTypes() *fieldTypes {
	return newFieldTypes(func() (map[string]*spec.Schema, error) {
		config := genericapiserver.DefaultOpenAPIV3Config(definitions.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(scheme.Scheme))
		return builder.BuildOpenAPIDefinitionsForResources(config, "io.k8s.api.core.v1.Pod")
	})
}

func podManager(t testing.TB, types managedfields.TypeConverter) *managedfields.FieldManager {
	t.Helper()
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	manager, err := managedfields.NewDefaultFieldManager(types, scheme.Scheme, scheme.Scheme, scheme.Scheme, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

// TestFieldTypes compares the managed fields of random pods with those that upstream's converter finds.
func TestFieldTypes(t *testing.T) {
	types := podTypes()
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

// TestCreatedFields: objects that are equal to others have the managed fields that they have without them.
func TestCreatedFields(t *testing.T) {
	manager := podManager(t, podTypes())
	fields := newCreatedFields(manager)
	created := func(by string, change func(*corev1.Pod)) {
		t.Helper()
		p := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Labels: map[string]string{"app": "a"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
		}
		if change != nil {
			change(p)
		}
		empty, want := &corev1.Pod{TypeMeta: p.TypeMeta}, p.DeepCopy()
		track(manager, empty, want, by)
		for range 2 {
			got := fields.set(empty, p.DeepCopy(), by).(*corev1.Pod)
			compareFields(t, "created", want, got)
			if age := time.Since(got.ManagedFields[0].Time.Time); age < 0 || age > time.Minute {
				t.Errorf("the fields are %v old", age)
			}
			got.ManagedFields[0].FieldsV1.Raw[0] = 'x' // which is nobody else's
		}
	}
	created("a", nil)
	created("b", nil)
	created("a", func(p *corev1.Pod) { p.Labels["other"] = "a" })
	created("a", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "d" })
	created("a", func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{} })
	created("a", func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(false) })
	created("a", func(p *corev1.Pod) {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "b", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}, Time: new(metav1.Now())}}
	})
	created("a", nil)
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
	types := podTypes()
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
	types := podTypes()
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
			config := definitions.Apart(g.OpenAPIV3Config)
			models, err := builder.BuildOpenAPIDefinitionsForResources(config, "io.k8s.api.core.v1.Pod")
			if err != nil || len(models) == 0 {
				t.Errorf("%d models, %v", len(models), err)
			}
		})
	}
	builds.Wait()
}
