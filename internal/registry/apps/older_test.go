// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

// everyVersion returns a scheme with all versions.
func everyVersion(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := Group().Register(scheme); err != nil {
		t.Fatal(err)
	}
	if err := Extensions().Register(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// TestOlderVersionsLoseNothing converts arbitrary objects to each older version and back.
func TestOlderVersionsLoseNothing(t *testing.T) {
	scheme := everyVersion(t)
	fill := randfill.New().NilChance(.3).NumElements(1, 2).RandSource(rand.NewSource(1)).Funcs(
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(*metav1.ManagedFieldsEntry, randfill.Continue) {},
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"a":1}`) },
		func(q *intstr.IntOrString, c randfill.Continue) { *q = intstr.FromInt32(c.Int31()) },
		func(spec *corev1.PodSpec, c randfill.Continue) { c.Fill(&spec.Containers) },
	)
	for _, older := range []schema.GroupVersion{extensionsv1beta1.SchemeGroupVersion, appsv1beta1.SchemeGroupVersion, appsv1beta2.SchemeGroupVersion} {
		for _, example := range []runtime.Object{
			&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &appsv1.ControllerRevision{}, &appsv1.DeploymentList{}, &appsv1.DaemonSetList{},
		} {
			kinds, _, _ := scheme.ObjectKinds(example)
			if !scheme.Recognizes(older.WithKind(kinds[0].Kind)) {
				continue
			}
			for range 50 {
				want := example.DeepCopyObject()
				fill.Fill(want)
				roundTrip(t, scheme, want, older)
			}
		}
	}
}

func roundTrip(t *testing.T, scheme *runtime.Scheme, stored runtime.Object, older schema.GroupVersion) {
	t.Helper()
	before := stored.DeepCopyObject()
	converted, err := scheme.UnsafeConvertToVersion(stored, older)
	if err != nil {
		t.Fatal(err)
	}
	if gv := converted.GetObjectKind().GroupVersionKind().GroupVersion(); gv != older {
		t.Fatalf("%s, want %s", gv, older)
	}
	if !apiequality.Semantic.DeepEqual(stored, before) {
		t.Fatalf("the conversion to %s changed its input:\n%s", older, cmp.Diff(before, stored))
	}
	if back := toStored(t, scheme, converted); !apiequality.Semantic.DeepEqual(before, back) {
		t.Fatalf("%T lost in %s:\n%s", stored, older, cmp.Diff(before, back))
	}
}

// toStored converts an object to apps/v1, as a request does.
func toStored(t *testing.T, scheme *runtime.Scheme, older runtime.Object) runtime.Object {
	t.Helper()
	kinds, _, err := scheme.ObjectKinds(older)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := scheme.ConvertToVersion(older, schema.GroupVersion{Group: kinds[0].Group, Version: runtime.APIVersionInternal})
	if err != nil {
		t.Fatal(err)
	}
	stored.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return stored
}

func labelled() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
}

// TestOlderDefaults: what the older versions default, in terms of apps/v1.
func TestOlderDefaults(t *testing.T) {
	scheme := everyVersion(t)
	for name, test := range map[string]struct {
		given runtime.Object
		want  func(t *testing.T, stored runtime.Object)
	}{
		"extensions Deployment": {&extensionsv1beta1.Deployment{Spec: extensionsv1beta1.DeploymentSpec{Template: labelled()}}, func(t *testing.T, stored runtime.Object) {
			spec := stored.(*appsv1.Deployment).Spec
			isDefaultedFromTemplate(t, stored, spec.Selector)
			one := intstr.FromInt32(1)
			want := appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &one}}
			if diff := cmp.Diff(want, spec.Strategy); diff != "" || *spec.ProgressDeadlineSeconds != unlimited || *spec.RevisionHistoryLimit != unlimited || *spec.Replicas != 1 {
				t.Errorf("%s %+v", diff, spec)
			}
			if spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
				t.Error("the template has no defaults")
			}
		}},
		"extensions Deployment with half a strategy": {&extensionsv1beta1.Deployment{Spec: extensionsv1beta1.DeploymentSpec{Strategy: extensionsv1beta1.DeploymentStrategy{Type: "Recreate", RollingUpdate: &extensionsv1beta1.RollingUpdateDeployment{}}}}, func(t *testing.T, stored runtime.Object) {
			if rolling := stored.(*appsv1.Deployment).Spec.Strategy.RollingUpdate; rolling.MaxSurge.IntVal != 1 {
				t.Errorf("%+v", rolling)
			}
		}},
		"extensions Deployment without labels": {&extensionsv1beta1.Deployment{}, func(t *testing.T, stored runtime.Object) {
			if selector := stored.(*appsv1.Deployment).Spec.Selector; selector != nil {
				t.Errorf("%v", selector)
			}
		}},
		"extensions ReplicaSet": {&extensionsv1beta1.ReplicaSet{Spec: extensionsv1beta1.ReplicaSetSpec{Template: labelled()}}, func(t *testing.T, stored runtime.Object) {
			isDefaultedFromTemplate(t, stored, stored.(*appsv1.ReplicaSet).Spec.Selector)
		}},
		"extensions DaemonSet": {&extensionsv1beta1.DaemonSet{Spec: extensionsv1beta1.DaemonSetSpec{Template: labelled()}}, func(t *testing.T, stored runtime.Object) {
			spec := stored.(*appsv1.DaemonSet).Spec
			isDefaultedFromTemplate(t, stored, spec.Selector)
			if spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType || spec.UpdateStrategy.RollingUpdate != nil || *spec.RevisionHistoryLimit != 10 {
				t.Errorf("%+v", spec)
			}
		}},
		"apps/v1beta1 Deployment": {&appsv1beta1.Deployment{Spec: appsv1beta1.DeploymentSpec{Template: labelled()}}, func(t *testing.T, stored runtime.Object) {
			spec := stored.(*appsv1.Deployment).Spec
			isDefaultedFromTemplate(t, stored, spec.Selector)
			if *spec.RevisionHistoryLimit != 2 || *spec.ProgressDeadlineSeconds != 600 || spec.Strategy.RollingUpdate.MaxSurge.String() != "25%" {
				t.Errorf("%+v", spec)
			}
		}},
		"apps/v1beta1 StatefulSet": {&appsv1beta1.StatefulSet{Spec: appsv1beta1.StatefulSetSpec{Template: labelled()}}, func(t *testing.T, stored runtime.Object) {
			spec := stored.(*appsv1.StatefulSet).Spec
			isDefaultedFromTemplate(t, stored, spec.Selector)
			if spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType || spec.UpdateStrategy.RollingUpdate != nil || spec.PodManagementPolicy != appsv1.OrderedReadyPodManagement {
				t.Errorf("%+v", spec)
			}
		}},
		"apps/v1beta2 StatefulSet": {&appsv1beta2.StatefulSet{Spec: appsv1beta2.StatefulSetSpec{Template: labelled()}}, func(t *testing.T, stored runtime.Object) {
			s := stored.(*appsv1.StatefulSet)
			if s.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType || s.Spec.Selector != nil || s.Labels != nil {
				t.Errorf("%+v", s)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme.Default(test.given)
			test.want(t, toStored(t, scheme, test.given))
		})
	}
}

func isDefaultedFromTemplate(t *testing.T, stored runtime.Object, selector *metav1.LabelSelector) {
	t.Helper()
	want := map[string]string{"app": "web"}
	object, err := meta.Accessor(stored)
	if err != nil || selector == nil || !cmp.Equal(want, selector.MatchLabels) || !cmp.Equal(want, object.GetLabels()) {
		t.Errorf("selector %v, labels %v, want those of the template", selector, object.GetLabels())
	}
}

// TestFieldsInAnnotations: fields that apps/v1 does not have are annotations there.
func TestFieldsInAnnotations(t *testing.T) {
	scheme := everyVersion(t)
	shared := map[string]string{"mine": "kept", appsv1.DeprecatedRollbackTo: "3"}
	older, err := scheme.UnsafeConvertToVersion(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: shared}}, extensionsv1beta1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	d := older.(*extensionsv1beta1.Deployment)
	if d.Spec.RollbackTo == nil || d.Spec.RollbackTo.Revision != 3 || len(d.Annotations) != 1 || len(shared) != 2 {
		t.Errorf("%v %v, shared %v", d.Spec.RollbackTo, d.Annotations, shared)
	}
	d.Spec.RollbackTo = nil
	if stored := toStored(t, scheme, d).(*appsv1.Deployment); len(stored.Annotations) != 1 {
		t.Errorf("%v", stored.Annotations)
	}
	set := &extensionsv1beta1.DaemonSet{Spec: extensionsv1beta1.DaemonSetSpec{TemplateGeneration: 7}}
	if stored := toStored(t, scheme, set).(*appsv1.DaemonSet); stored.Annotations[appsv1.DeprecatedTemplateGeneration] != "7" {
		t.Errorf("%v", stored.Annotations)
	}
}

func TestOlderScales(t *testing.T) {
	scheme := everyVersion(t)
	for selector, labels := range map[string]map[string]string{"app=web": {"app": "web"}, "app in (a,b)": nil, "": {}} {
		in := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}, Status: autoscalingv1.ScaleStatus{Replicas: 2, Selector: selector}}
		converted, err := scheme.ConvertToVersion(in, extensionsv1beta1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		older := converted.(*extensionsv1beta1.Scale)
		if older.Spec.Replicas != 3 || older.Status.Replicas != 2 || older.Status.TargetSelector != selector || !apiequality.Semantic.DeepEqual(older.Status.Selector, labels) {
			t.Errorf("%q: %+v", selector, older)
		}
	}
	out := &autoscalingv1.Scale{}
	if err := scheme.Convert(&appsv1beta1.Scale{Status: appsv1beta1.ScaleStatus{Selector: map[string]string{"app": "web"}}}, out, nil); err != nil || out.Status.Selector != "app=web" {
		t.Errorf("%+v, %v", out, err)
	}
}
