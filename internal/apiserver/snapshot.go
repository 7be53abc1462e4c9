// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/backup"
	"github.com/kindred-project/kindred/internal/storage"
)

// serveSnapshot serves the store of a backend.
func serveSnapshot(main *genericapiserver.GenericAPIServer, backend *storage.Backend) {
	main.Handler.NonGoRestfulMux.HandleFunc(backup.SnapshotPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
			return
		}
		content, err := backend.Snapshot(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer content.Close()
		w.Header().Set("Content-Type", "application/octet-stream")
		if _, err := io.Copy(w, content); err != nil {
			klog.FromContext(r.Context()).Error(err, "A snapshot of the store was not completed")
			panic(http.ErrAbortHandler) // the client must not take it for a whole one
		}
	})
}

// longRunning is the check for requests that may take longer than others, with that for a snapshot.
func longRunning(next request.LongRunningRequestCheck) request.LongRunningRequestCheck {
	return func(r *http.Request, info *request.RequestInfo) bool {
		return info.Path == backup.SnapshotPath || next(r, info)
	}
}
