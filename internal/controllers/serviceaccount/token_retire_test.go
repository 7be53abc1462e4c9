// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var now = time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)

func day(ago int) string { return now.AddDate(0, 0, -ago).Format(time.DateOnly) }

func aged(s *corev1.Secret, days int, labels map[string]string) *corev1.Secret {
	s.CreationTimestamp, s.Labels = metav1.NewTime(now.AddDate(0, 0, -days)), labels
	return s
}

func TestNextAction(t *testing.T) {
	for name, tt := range map[string]struct {
		age    int
		labels map[string]string
		want   action
	}{
		"younger than a year":          {364, nil, keep},
		"never used":                   {366, nil, invalidate},
		"used today":                   {900, map[string]string{lastUsedLabel: day(0)}, keep},
		"used a year ago":              {900, map[string]string{lastUsedLabel: day(365)}, keep},
		"used over a year ago":         {900, map[string]string{lastUsedLabel: day(366)}, invalidate},
		"invalid date of use":          {900, map[string]string{lastUsedLabel: "yesterday"}, keep},
		"invalid since today":          {900, map[string]string{invalidSinceLabel: day(0)}, keep},
		"invalid for a year":           {900, map[string]string{invalidSinceLabel: day(366)}, remove},
		"invalid, but used":            {900, map[string]string{invalidSinceLabel: day(366), lastUsedLabel: day(3)}, keep},
		"invalid date of invalidation": {900, map[string]string{invalidSinceLabel: "x"}, invalidate},
	} {
		if got := nextAction(aged(secret("s", "a", "", nil), tt.age, tt.labels), now); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestRetire(t *testing.T) {
	ctx := context.Background()
	clock := testingclock.NewFakePassiveClock(now)
	tracking := func(since string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: trackingName}, Data: map[string]string{"since": since}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mounted"}}}}}}
	invalid := map[string]string{invalidSinceLabel: day(400)}
	objects := func(since string) client.Client {
		return fake.NewClientBuilder().WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string { return []string{string(o.(*corev1.Secret).Type)} }).
			WithObjects(tracking(since), pod, account("a", "1", "old", "expired", "mounted", "others"),
				aged(secret("old", "a", "1", nil), 900, nil), aged(secret("expired", "a", "1", nil), 900, invalid),
				aged(secret("mounted", "a", "1", nil), 900, invalid), aged(secret("manual", "a", "1", nil), 900, invalid),
				aged(secret("others", "a", "2", nil), 900, invalid)).Build()
	}
	retire := func(since string) map[string]string {
		t.Helper()
		api := objects(since)
		r := &retirer{client: api, live: api, apiReader: api, clock: clock}
		if err := r.retire(ctx); err != nil {
			t.Fatal(err)
		}
		left := map[string]string{}
		for _, name := range []string{"old", "expired", "mounted", "manual", "others"} {
			found := &corev1.Secret{}
			err := api.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, found)
			if err == nil {
				left[name] = found.Labels[invalidSinceLabel]
			} else if !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
		return left
	}
	if left := retire(day(365)); len(left) != 5 || left["old"] != "" {
		t.Errorf("before uses were recorded for a year: left %v", left)
	}
	left := retire(day(367))
	if _, exists := left["expired"]; exists || len(left) != 4 || left["old"] != day(0) || left["mounted"] != day(400) {
		t.Errorf("left %v", left)
	}
	api := objects("x")
	if err := (&retirer{client: api, live: api, apiReader: api, clock: clock}).retire(ctx); err == nil {
		t.Error("no error for a ConfigMap without a date")
	}
}
