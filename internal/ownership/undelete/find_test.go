// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/deletion"
)

// TestFindDeletion checks which deletion is undone and which state is restored.
func TestFindDeletion(t *testing.T) {
	configMaps := resourceOf("ConfigMap").GroupResource()
	asked := func(uid types.UID, revision int64) deletion.Record {
		return deletion.Record{Resource: configMaps, Namespace: "shop", Name: "root", UID: uid, Revision: revision, ResourceVersion: "4", By: deletion.Caller{User: "jane"}}
	}
	collected := func(uid types.UID, revision int64) deletion.Record {
		r := asked(uid, revision)
		r.Owners = []metav1.OwnerReference{{Name: "owner"}}
		return r
	}
	ended := func(uid types.UID, revision int64) *deletion.End {
		return &deletion.End{Object: object("ConfigMap", "root", withUID(uid)), Revision: revision, Time: noon}
	}
	root := func(changes ...change) *unstructured.Unstructured { return object("ConfigMap", "root", changes...) }
	expired := apierrors.NewResourceExpired("not retained any more")
	for name, tt := range map[string]struct {
		memory memory
		now    *unstructured.Unstructured
		uid    types.UID
		at     time.Time

		want     types.UID
		revision int64
		stage    stage
		by       string
		warned   bool
		err      func(error) bool
		says     string
	}{
		"requested":                                       {memory: memory{records: []deletion.Record{asked("a", 20)}}, want: "a", revision: 19, by: "jane"},
		"requested, the last of two":                      {memory: memory{records: []deletion.Record{asked("b", 30), asked("a", 20)}}, want: "b", revision: 29, by: "jane"},
		"requested twice, the first request":              {memory: memory{records: []deletion.Record{asked("a", 25), asked("a", 20)}}, want: "a", revision: 19, by: "jane"},
		"requested, selected by UID":                      {memory: memory{records: []deletion.Record{asked("b", 30), asked("a", 20)}}, uid: "a", want: "a", revision: 19, by: "jane"},
		"collected":                                       {memory: memory{records: []deletion.Record{collected("a", 25)}, end: ended("a", 22)}, want: "a", revision: 21, by: "jane"},
		"collected, the history is short":                 {memory: memory{records: []deletion.Record{collected("a", 25)}}, want: "a", revision: 4, by: "jane"},
		"collected, then recreated and deleted":           {memory: memory{records: []deletion.Record{collected("a", 25)}, end: ended("b", 40)}, uid: "a", want: "a", revision: 4, by: "jane"},
		"requested, and deleted later":                    {memory: memory{records: []deletion.Record{asked("a", 20)}, end: ended("a", 22)}, want: "a", revision: 19, by: "jane"},
		"requested, then recreated and deleted":           {memory: memory{records: []deletion.Record{asked("a", 20)}, end: ended("b", 40)}, want: "b", revision: 39},
		"requested, an earlier object was deleted before": {memory: memory{records: []deletion.Record{asked("a", 20)}, end: ended("b", 15)}, want: "a", revision: 19, by: "jane"},
		"collected, the last of two":                      {memory: memory{records: []deletion.Record{collected("a", 25)}, end: ended("b", 40)}, want: "b", revision: 39},
		"collected, an earlier object was deleted before": {memory: memory{records: []deletion.Record{collected("a", 25)}, end: ended("b", 3)}, want: "a", revision: 4, by: "jane"},
		"collected, recorded out of order":                {memory: memory{records: []deletion.Record{asked("a", 20), collected("b", 45)}, end: ended("b", 40)}, want: "b", revision: 39, by: "jane"},
		"requested, the history fails":                    {memory: memory{records: []deletion.Record{asked("a", 20)}, endErr: errBroken}, err: func(err error) bool { return err == errBroken }},
		"requested, the history fails, selected by UID":   {memory: memory{records: []deletion.Record{asked("a", 20)}, endErr: errBroken}, uid: "a", want: "a", revision: 19, by: "jane"},
		"no record":                          {memory: memory{end: ended("a", 22)}, want: "a", revision: 21},
		"no record, selected by UID":         {memory: memory{end: ended("a", 22)}, uid: "a", want: "a", revision: 21},
		"no record, selected by another UID": {memory: memory{end: ended("a", 22)}, uid: "b", err: apierrors.IsNotFound, says: "no deleted object of this name is known"},
		"nothing":                            {err: apierrors.IsNotFound, says: "no deleted object of this name is known"},
		"expired":                            {memory: memory{endErr: expired}, err: apierrors.IsResourceExpired, says: "not retained any more"},
		"broken":                             {memory: memory{endErr: errBroken}, err: func(err error) bool { return err == errBroken }},

		"at a time":                          {memory: memory{atAnyTime: 8, objects: map[int64][]*unstructured.Unstructured{8: {root(withUID("a"))}}, records: []deletion.Record{asked("b", 30), asked("a", 20)}}, at: noon.Add(-time.Hour), want: "a", revision: 8, by: "jane"},
		"at a time, selected by UID":         {memory: memory{atAnyTime: 8, objects: map[int64][]*unstructured.Unstructured{8: {root(withUID("a"))}}}, uid: "a", at: noon.Add(-time.Hour), want: "a", revision: 8},
		"at a time, selected by another UID": {memory: memory{atAnyTime: 8, objects: map[int64][]*unstructured.Unstructured{8: {root(withUID("a"))}}}, uid: "b", at: noon.Add(-time.Hour), err: apierrors.IsNotFound, says: "it did not exist at 12:00:00 on 2026-01-01"},
		"before it existed":                  {memory: memory{atAnyTime: 8}, at: noon.Add(-time.Hour), err: apierrors.IsNotFound, says: "it did not exist at"},
		"before the history":                 {at: noon.Add(-time.Hour), err: apierrors.IsResourceExpired, says: "the state at 2026-01-01T11:00:00Z is no longer retained, or Kindred did not run then"},
		"in the future":                      {at: noon.Add(time.Hour), err: apierrors.IsBadRequest, says: "at is in the future"},

		"it exists":                            {now: root(), err: apierrors.IsConflict, says: "it exists, with the UID root"},
		"it is still being deleted":            {now: root(deleting, onHold("a", false)), err: apierrors.IsConflict, says: "it is still being deleted"},
		"a part of another undeletion":         {now: root(onHold("a", false)), err: apierrors.IsConflict, says: "a part of the undeletion of the object that had the UID root"},
		"in progress":                          {now: root(withUID("new"), onHold("root", false)), memory: memory{records: []deletion.Record{asked("root", 11)}}, want: "root", revision: 10, stage: restoring, by: "jane"},
		"in progress, releasing":               {now: root(withUID("new"), onHold("root", true)), want: "root", revision: 10, stage: releasing},
		"in progress, selected by UID":         {now: root(withUID("new"), onHold("root", false)), uid: "root", want: "root", revision: 10, stage: restoring},
		"in progress, selected by another UID": {now: root(withUID("new"), onHold("root", false)), uid: "b", err: apierrors.IsConflict, says: "the undeletion of the object that had the UID root is in progress"},
		"in progress, at the same time":        {now: root(withUID("new"), onHold("root", false)), memory: memory{atAnyTime: 10}, at: noon.Add(-time.Hour), want: "root", revision: 10, stage: restoring},
		"in progress, at another time":         {now: root(withUID("new"), onHold("root", false)), memory: memory{atAnyTime: 8}, at: noon.Add(-time.Hour), want: "root", revision: 10, stage: restoring, warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			var there []*unstructured.Unstructured
			if tt.now != nil {
				there = append(there, tt.now)
			}
			w := newWorld(t, &tt.memory, there...)
			u := &undeletion{Cluster: w.cluster, Request: request("ConfigMap", "root"), report: &Report{}, lineage: &lineage{}}
			u.UID, u.At = tt.uid, tt.at
			err := u.findDeletion(t.Context())
			if tt.err != nil {
				if err == nil || !tt.err(err) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if u.uid != tt.want || u.revision != tt.revision || u.stage != tt.stage || u.record.By.User != tt.by || len(u.report.Warnings) > 0 != tt.warned {
				t.Errorf("UID %s, revision %d, stage %d, by %q, warnings %q", u.uid, u.revision, u.stage, u.record.By.User, u.report.Warnings)
			}
		})
	}
}
