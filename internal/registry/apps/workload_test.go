// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

// wantErrors compares errors, in any order, with how they begin.
func wantErrors(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got  %q\n want %q", name, got, want)
	}
}

func defaulting(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range Group().Scheme {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
}

func newDeployment(t *testing.T, change func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: appsv1.DeploymentSpec{Selector: selector(), Template: template()}}
	defaulting(t).Default(d)
	change(d)
	return d
}

func TestDeployments(t *testing.T) {
	rolling := func(unavailable, surge intstr.IntOrString) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &unavailable, MaxSurge: &surge}
		}
	}
	number, percent := intstr.FromInt32, intstr.FromString
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   []string
	}{
		"good":                           {func(*appsv1.Deployment) {}, nil},
		"replicas":                       {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(-1)) }, []string{"spec.replicas: Invalid value: -1: must be greater than or equal to 0"}},
		"no selector":                    {func(d *appsv1.Deployment) { d.Spec.Selector = nil }, []string{"spec.selector: Required", "spec.template.metadata.labels: Invalid"}},
		"empty selector":                 {func(d *appsv1.Deployment) { d.Spec.Selector = &metav1.LabelSelector{} }, []string{"spec.selector: Invalid value: {}: empty selector is invalid for deployment"}},
		"labels do not match":            {func(d *appsv1.Deployment) { d.Spec.Template.Labels = map[string]string{"a": "x"} }, []string{"spec.template.metadata.labels: Invalid value: {\"a\":\"x\"}: `selector` does not match template `labels`"}},
		"restart policy Never":           {func(d *appsv1.Deployment) { d.Spec.Template.Spec.RestartPolicy = "Never" }, []string{`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`}},
		"active deadline":                {func(d *appsv1.Deployment) { d.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(5)) }, []string{"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"}},
		"no containers":                  {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = nil }, []string{"spec.template.spec.containers: Required"}},
		"maxUnavailable and maxSurge 0":  {rolling(number(0), number(0)), []string{"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"}},
		"maxUnavailable and maxSurge 0%": {rolling(percent("0%"), percent("0%")), []string{"spec.strategy.rollingUpdate.maxUnavailable: Invalid"}},
		"maxSurge only":                  {rolling(number(0), percent("10%")), nil},
		"maxUnavailable above 100%":      {rolling(percent("101%"), number(1)), []string{"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"}},
		"maxSurge above 100%":            {rolling(number(1), percent("500%")), nil},
		"not a percentage":               {rolling(percent("x"), number(1)), []string{`spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "x": a valid percent string must be`}},
		"negative surge":                 {rolling(number(1), number(-1)), []string{"spec.strategy.rollingUpdate.maxSurge: Invalid value: -1"}},
		"recreate with rollingUpdate":    {func(d *appsv1.Deployment) { d.Spec.Strategy.Type = "Recreate" }, []string{"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"}},
		"strategy":                       {func(d *appsv1.Deployment) { d.Spec.Strategy.Type = "Magic" }, []string{"spec.strategy: Unsupported value"}},
		"deadline":                       {func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 600 }, []string{"spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"}},
		"history":                        {func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(-1)) }, []string{"spec.revisionHistoryLimit: Invalid value: -1"}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), Deployment.Validate, newDeployment(t, test.change)), test.want...)
	}
	changed := newDeployment(t, func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels = map[string]string{"c": "d"}
		d.Spec.Template.Labels = map[string]string{"c": "d"}
	})
	wantErrors(t, "selector", checktest.UpdateErrors(t.Context(), Deployment.ValidateUpdate, changed, newDeployment(t, func(*appsv1.Deployment) {})), "spec.selector: Invalid value")
}

func TestDeploymentStatus(t *testing.T) {
	for name, test := range map[string]struct {
		status appsv1.DeploymentStatus
		was    *int32
		want   []string
	}{
		"good":                  {appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 1}, nil, nil},
		"counts above replicas": {appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}, nil, []string{"status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas", "status.readyReplicas: Invalid", "status.availableReplicas: Invalid"}},
		"available":             {appsv1.DeploymentStatus{Replicas: 3, ReadyReplicas: 1, AvailableReplicas: 2}, nil, []string{"status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"}},
		"negative":              {appsv1.DeploymentStatus{ObservedGeneration: -1, UnavailableReplicas: -1, TerminatingReplicas: new(int32(-1))}, nil, []string{"status.observedGeneration: Invalid", "status.unavailableReplicas: Invalid", "status.terminatingReplicas: Invalid"}},
		"collisions":            {appsv1.DeploymentStatus{CollisionCount: new(int32(1))}, new(int32(2)), []string{"status.collisionCount: Invalid value: 1: cannot be decremented"}},
		"forgotten":             {appsv1.DeploymentStatus{}, new(int32(2)), []string{"status.collisionCount: Invalid value: 0: cannot be decremented"}},
		"first":                 {appsv1.DeploymentStatus{CollisionCount: new(int32(1))}, nil, nil},
	} {
		old := &appsv1.Deployment{Status: appsv1.DeploymentStatus{CollisionCount: test.was}}
		wantErrors(t, name, checktest.UpdateErrors(t.Context(), Deployment.StatusUpdate.Validate, &appsv1.Deployment{Status: test.status}, old), test.want...)
	}
}

func TestAlphaFieldsAreDropped(t *testing.T) {
	d := newDeployment(t, func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} })
	Deployment.Prepare(t.Context(), d, nil)
	if d.Spec.Template.Spec.SchedulingGroup != nil {
		t.Error("still there")
	}
}

func TestWarnings(t *testing.T) {
	odd := newDeployment(t, func(d *appsv1.Deployment) {
		d.Name = "a.b"
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}, {Name: "A"}}
	})
	if got := Deployment.Warnings(t.Context(), odd, nil); len(got) != 2 || !strings.Contains(got[0], "a DNS label is recommended") {
		t.Errorf("created: %q", got)
	}
	scaled := odd.DeepCopy()
	scaled.Spec.Replicas = new(int32(9))
	if got := Deployment.Warnings(t.Context(), scaled, odd); len(got) != 0 {
		t.Errorf("scaled: %q", got)
	}
	scaled.Spec.Template.Labels["new"] = "x"
	if got := Deployment.Warnings(t.Context(), scaled, odd); len(got) != 1 {
		t.Errorf("changed: %q", got)
	}
}

func TestReplicaSets(t *testing.T) {
	r := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Selector: selector(), Template: template(), MinReadySeconds: -1}}
	defaulting(t).Default(r)
	wantErrors(t, "min ready", checktest.Errors(t.Context(), ReplicaSet.Validate, r), "spec.minReadySeconds: Invalid value: -1")
	r.Status = appsv1.ReplicaSetStatus{Replicas: 1, FullyLabeledReplicas: 2}
	wantErrors(t, "status", checktest.UpdateErrors(t.Context(), ReplicaSet.StatusUpdate.Validate, r, r), "status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas")
}

func TestControllerRevisions(t *testing.T) {
	for data, want := range map[string][]string{
		`{"a":1}`: nil, `{}`: nil, ``: {"data: Required value: data is mandatory"}, `null`: {"data: Required value: data is mandatory"},
		`[]`: {"data: Required value: data must be a valid JSON object"}, `{`: {`data: Invalid value: "<value omitted>": error parsing data`},
	} {
		c := &appsv1.ControllerRevision{Revision: 1}
		if data != "" {
			c.Data.Raw = []byte(data)
		}
		wantErrors(t, data, checktest.Errors(t.Context(), ControllerRevision.Validate, c), want...)
	}
	old := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"a":1}`)}}
	changed := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"a":2}`)}, Revision: -1}
	wantErrors(t, "update", checktest.UpdateErrors(t.Context(), ControllerRevision.ValidateUpdate, changed, old), "data: Invalid value", "revision: Invalid value: -1")
	c := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: new(true)}}}}
	if got := revisionController(c); got != "statefulset.apps/db" {
		t.Errorf("cell %v", got)
	}
}
