// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recordingWatcher records what it gets.
type recordingWatcher struct {
	unwatched bool
	got       []string
}

func (r *recordingWatcher) Watched() bool { return !r.unwatched }

func (r *recordingWatcher) PodChanged(p *v1.Pod, deleted bool) {
	text := "changed " + string(p.Status.Phase)
	if deleted {
		text += " deleted"
	}
	r.got = append(r.got, text)
}

func (r *recordingWatcher) PodEnded(types.UID) { r.got = append(r.got, "ended") }

func TestNotify(t *testing.T) {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}}
	with := func(change func(*v1.Pod)) *v1.Pod {
		p := object.DeepCopy()
		change(p)
		return p
	}
	running, failed := v1.PodStatus{Phase: v1.PodRunning}, v1.PodStatus{Phase: v1.PodFailed}
	for _, test := range []struct {
		name      string
		before    published
		pod       *v1.Pod
		deleted   bool
		rejected  bool
		unwatched bool
		out       Output
		want      []string
	}{
		{name: "first", pod: object, out: Output{Status: running}, before: published{status: running}, want: []string{"changed Running"}},
		{name: "nothing changed", pod: object, before: published{pod: object, status: running}, out: Output{Status: running}},
		{
			name: "status", pod: object, before: published{pod: object, status: running}, out: Output{Status: failed},
			want: []string{"changed Failed"},
		},
		{
			name: "status, unwatched", pod: object, before: published{pod: object, status: running}, out: Output{Status: failed, Finished: true},
			unwatched: true,
		},
		{
			name: "the status was written", before: published{pod: object, status: running}, out: Output{Status: running},
			pod: with(func(p *v1.Pod) {
				p.ResourceVersion, p.ManagedFields, p.Status = "2", []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}, running
			}),
		},
		{
			name: "label", before: published{pod: object, status: running}, out: Output{Status: running},
			pod: with(func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }), want: []string{"changed Running"},
		},
		{
			name: "spec", before: published{pod: object, status: running}, out: Output{Status: running},
			pod: with(func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{}} }), want: []string{"changed Running"},
		},
		{
			name: "deleted", pod: object, deleted: true, before: published{pod: object, status: running}, out: Output{Status: failed},
			want: []string{"changed Failed deleted"},
		},
		{
			name: "ends", pod: object, before: published{pod: object, status: running}, out: Output{Status: failed, Finished: true},
			want: []string{"changed Failed", "ended"},
		},
		{
			name: "has ended", before: published{pod: object, status: failed, finished: true}, out: Output{Status: failed, Finished: true},
			pod: with(func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }),
		},
		{
			name: "rejected", pod: object, rejected: true, before: published{}, out: Output{Status: failed, Finished: true},
			want: []string{"changed Failed"},
		},
	} {
		watcher := &recordingWatcher{unwatched: test.unwatched}
		w := &Worker{parts: &Parts{Watcher: watcher}}
		if test.rejected {
			w.rejected = &Refusal{}
		}
		w.notify(test.pod, test.deleted, test.before, test.out)
		if !slices.Equal(watcher.got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, watcher.got, test.want)
		}
	}
}

// TestVerifiedPod: a pod that an earlier agent had ready is not shown as ready until this one has observed it.
func TestVerifiedPod(t *testing.T) {
	ready := v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	w := NewWorker(&Parts{}, &v1.Pod{Status: ready}, nil, false)
	shown := w.VerifiedPod().Status
	if c := shown.Conditions[0]; c.Status != v1.ConditionFalse || c.Reason != "ContainersNotReady" || shown.Phase != v1.PodPending {
		t.Errorf("before the first decision: %+v", shown)
	}
	if c := w.Pod().Status.Conditions[0]; c.Status != v1.ConditionTrue {
		t.Errorf("the worker's own status has changed: %+v", c)
	}
	w.publish(w.pod, true, Output{Status: ready})
	if c := w.VerifiedPod().Status.Conditions[0]; c.Status != v1.ConditionTrue {
		t.Errorf("after it: %+v", c)
	}
}
