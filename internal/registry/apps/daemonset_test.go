// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func newDaemonSet(t *testing.T, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	t.Helper()
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "default"}, Spec: appsv1.DaemonSetSpec{Selector: selector(), Template: template()}}
	defaulting(t).Default(d)
	change(d)
	return d
}

func TestDaemonSet(t *testing.T) {
	rolling := func(unavailable, surge intstr.IntOrString) func(*appsv1.DaemonSet) {
		return func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge}
		}
	}
	number, percent := intstr.FromInt32, intstr.FromString
	for name, test := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   []string
	}{
		"good":                  {func(*appsv1.DaemonSet) {}, nil},
		"on delete":             {func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: "OnDelete"} }, nil},
		"surge":                 {rolling(number(0), percent("10%")), nil},
		"both":                  {rolling(number(1), number(1)), []string{"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"}},
		"neither":               {rolling(percent("0%"), number(0)), []string{"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"}},
		"more than 100 percent": {rolling(percent("101%"), number(0)), []string{`spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`}},
		"no parameters":         {func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.RollingUpdate = nil }, []string{"spec.updateStrategy.rollingUpdate: Required value"}},
		"strategy":              {func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = "Magic" }, []string{"spec.updateStrategy: Unsupported value"}},
		"no selector":           {func(d *appsv1.DaemonSet) { d.Spec.Selector = nil }, []string{"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		"empty selector":        {func(d *appsv1.DaemonSet) { d.Spec.Selector = &metav1.LabelSelector{} }, []string{"spec.selector: Invalid value: {}: empty selector is invalid for daemonset"}},
		"restart policy Never":  {func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.RestartPolicy = "Never" }, []string{`spec.template.spec.restartPolicy: Unsupported value: "Never"`}},
		"active deadline":       {func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(5)) }, []string{"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"}},
		"numbers":               {func(d *appsv1.DaemonSet) { d.Spec.MinReadySeconds, d.Spec.RevisionHistoryLimit = -1, new(int32(-1)) }, []string{"spec.minReadySeconds: Invalid value: -1", "spec.revisionHistoryLimit: Invalid value: -1"}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), DaemonSet.Validate, newDaemonSet(t, test.change)), test.want...)
	}
	changed := newDaemonSet(t, func(d *appsv1.DaemonSet) {
		d.Spec.Selector.MatchLabels = map[string]string{"c": "d"}
		d.Spec.Template.Labels = map[string]string{"c": "d"}
	})
	wantErrors(t, "selector", checktest.UpdateErrors(t.Context(), DaemonSet.ValidateUpdate, changed, newDaemonSet(t, func(*appsv1.DaemonSet) {})), "spec.selector: Invalid value")
}

func TestDaemonSetStatus(t *testing.T) {
	old := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{CollisionCount: new(int32(2))}}
	bad := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{NumberReady: -1, NumberUnavailable: -1, ObservedGeneration: -1}}
	wantErrors(t, "bad", checktest.UpdateErrors(t.Context(), DaemonSet.StatusUpdate.Validate, bad, old), "status.collisionCount: Invalid value: 0: cannot be decremented",
		"status.numberReady: Invalid", "status.numberUnavailable: Invalid", "status.observedGeneration: Invalid")
	good := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{NumberReady: 9, CollisionCount: new(int32(2))}}
	wantErrors(t, "good", checktest.UpdateErrors(t.Context(), DaemonSet.StatusUpdate.Validate, good, old))
}

// TestTemplateGeneration checks that the server counts changes of the template, and that clients
// can set the count only on create.
func TestTemplateGeneration(t *testing.T) {
	with := func(value string) *appsv1.DaemonSet {
		return newDaemonSet(t, func(d *appsv1.DaemonSet) {
			if value != "" {
				d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: value}
			}
		})
	}
	image := func(d *appsv1.DaemonSet) *appsv1.DaemonSet {
		d.Spec.Template.Spec.Containers[0].Image = "j"
		return d
	}
	for name, test := range map[string]struct {
		d, old *appsv1.DaemonSet
		want   string
	}{
		"new":              {with(""), nil, "1"},
		"set on create":    {with("7"), nil, "7"},
		"negative":         {with("-7"), nil, "1"},
		"decreased":        {with("3"), with("7"), "7"},
		"omitted":          {with(""), with("7"), "7"},
		"changed template": {image(with("")), with("7"), "8"},
	} {
		DaemonSet.Prepare(t.Context(), test.d, test.old)
		if got := test.d.Annotations[appsv1.DeprecatedTemplateGeneration]; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	status := with("")
	DaemonSet.StatusUpdate.Prepare(t.Context(), status, with("7"))
	if got := status.Annotations[appsv1.DeprecatedTemplateGeneration]; got != "7" {
		t.Errorf("after a write of the status: %s", got)
	}
	if _, err := DaemonSet.Hooks.BeginCreate(t.Context(), with("x"), false); !apierrors.IsBadRequest(err) {
		t.Errorf("no number: %v", err)
	}
	for verb, refused := range map[string]func(error) bool{"update": apierrors.IsBadRequest, "patch": apierrors.IsInvalid} {
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb})
		if _, err := DaemonSet.Hooks.BeginUpdate(ctx, with("x"), with("7"), false); !refused(err) {
			t.Errorf("no number in a %s: %v", verb, err)
		}
		if _, err := DaemonSet.Hooks.BeginUpdate(ctx, with("8"), with("7"), false); err != nil {
			t.Errorf("a number in a %s: %v", verb, err)
		}
	}
}

func TestDaemonSetWarnings(t *testing.T) {
	odd := newDaemonSet(t, func(d *appsv1.DaemonSet) {
		d.Name = "a.b"
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}, {Name: "A"}}
	})
	if got := DaemonSet.Warnings(t.Context(), odd, nil); len(got) != 1 {
		t.Errorf("created: %q", got)
	}
	same := odd.DeepCopy()
	same.Spec.MinReadySeconds = 3
	if got := DaemonSet.Warnings(t.Context(), same, odd); len(got) != 0 {
		t.Errorf("same template: %q", got)
	}
}
