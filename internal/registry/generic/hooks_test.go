// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOutcomeOf(t *testing.T) {
	resource := schema.GroupResource{Resource: "services"}
	for _, tc := range []struct {
		err  error
		want Outcome
	}{
		{nil, Written},
		{apierrors.NewConflict(resource, "web", errors.New("changed")), Refused},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", nil), Refused},
		{fmt.Errorf("wrapped: %w", apierrors.NewAlreadyExists(resource, "web")), Refused},
		// The store may have written the object before these errors.
		{apierrors.NewServerTimeout(resource, "create", 1), Unknown},
		{apierrors.NewTimeoutError("no answer", 1), Unknown},
		{apierrors.NewInternalError(errors.New("etcd is gone")), Unknown},
		{context.DeadlineExceeded, Unknown},
	} {
		if got := outcomeOf(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
}

// TestEachAttemptIsFinishedOnce checks that the hooks of an attempt finish before the next begins,
// and that the last learn the outcome.
func TestEachAttemptIsFinishedOnce(t *testing.T) {
	var log []string
	hook := func(name string, err error) func() (Finish, error) {
		return func() (Finish, error) {
			log = append(log, "begin "+name)
			if err != nil {
				return nil, err
			}
			return func(_ context.Context, outcome Outcome) {
				log = append(log, fmt.Sprint("finish ", name, " ", outcome))
			}, nil
		}
	}
	attempt := &begun{}
	ctx := context.WithValue(context.Background(), begunKey{}, attempt)
	refused := errors.New("no")
	for _, h := range []struct {
		name string
		err  error
	}{{"a", nil}, {"b", refused}, {"c", nil}} {
		finish, err := begin(ctx, hook(h.name, h.err))
		if !errors.Is(err, h.err) {
			t.Fatal(err)
		}
		// k8s.io/apiserver reports success after validation; the hooks must not rely on it.
		finish(ctx, true)
	}
	attempt.settle(ctx, Written)
	attempt.settle(ctx, Written)
	want := []string{"begin a", "finish a 0", "begin b", "begin c", "finish c 1"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := begin(context.Background(), hook("d", nil)); err == nil {
		t.Error("a hook ran outside of a write")
	}
}
