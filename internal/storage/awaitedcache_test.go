// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// TestListOfNewCache: a list of the server itself waits until the watch cache is filled. A request's
// list is refused meanwhile, for its client to try again.
func TestListOfNewCache(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	defer b.Close()
	all := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	refused := 0
	for range 20 {
		requested := request.WithRequestInfo(t.Context(), &request.RequestInfo{})
		err := newPodStorage(t, b).GetList(requested, "/pods", all, &corev1.PodList{})
		if apierrors.IsTooManyRequests(err) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
		if err := newPodStorage(t, b).GetList(t.Context(), "/pods", all, &corev1.PodList{}); err != nil {
			t.Error(err)
		}
	}
	if refused == 0 {
		t.Error("no list met a cache that was not filled: the test shows nothing")
	}
}
