// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestPost(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	board := NewBoard(recorder, clock)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "1"}}
	post := func(want []string, notices ...Notice) {
		t.Helper()
		board.Post(pod, notices)
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	bad, late := Warning("Bad", "it is bad"), Normal("Late", "it is late")
	post([]string{"Warning Bad it is bad"}, bad)
	post([]string{"Normal Late it is late"}, bad, late)
	post(nil, bad, late)
	post(nil, late)
	post([]string{"Warning Bad it is bad"}, bad, late)
	post([]string{"Normal Late it is late"}, bad, late.About(clock.Now()))
	clock.Step(repetition)
	post([]string{"Warning Bad it is bad"}, bad)
	pod.UID = "2"
	post([]string{"Warning Bad it is bad"}, bad)
	board.Forget(client.ObjectKeyFromObject(pod))
	post([]string{"Warning Bad it is bad"}, bad)
	post(nil)
	if len(board.posted) != 0 {
		t.Errorf("remembers %v", board.posted)
	}
}
