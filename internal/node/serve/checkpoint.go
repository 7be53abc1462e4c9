// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// checkpoint has the runtime write the state of a running container to an archive (KEP-2008), and responds with its path on
// the node. The runtime needs CRIU for it.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.options.Lookup.Pod(r.PathValue("namespace"), r.PathValue("pod"), "")
	if !ok {
		fail(w, http.StatusNotFound, "pod does not exist")
		return
	}
	name := r.PathValue("container")
	if !declares(pod, name) {
		fail(w, http.StatusNotFound, fmt.Sprintf("container %v does not exist", name))
		return
	}
	timeout, err := timeoutOf(r)
	if err != nil {
		fail(w, http.StatusNotFound, "cannot parse value of timeout parameter")
		return
	}
	problem := func(text string) {
		fail(w, http.StatusInternalServerError, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", pod.Namespace, pod.Name, name, text))
	}
	instance, ok := s.options.Lookup.Container(r.Context(), pod.UID, name, false)
	if !ok {
		problem(fmt.Sprintf("container %v not found", name))
		return
	}
	if err := os.MkdirAll(s.options.CheckpointDir, 0o700); err != nil {
		problem(err.Error())
		return
	}
	archive := fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, name, s.options.Clock.Now().Format(time.RFC3339))
	path := filepath.Join(s.options.CheckpointDir, archive)
	err = s.options.Runtime.CheckpointContainer(r.Context(), &runtimeapi.CheckpointContainerRequest{
		ContainerId: instance.ID, Location: path, Timeout: timeout,
	})
	if err != nil {
		problem(runtime.Message(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]string{"items": {path}})
}

// timeoutOf returns the last value of the parameter timeout, in seconds; 0 is the runtime client's own timeout.
func timeoutOf(r *http.Request) (int64, error) {
	values := r.URL.Query()["timeout"]
	if len(values) == 0 {
		return 0, nil
	}
	return strconv.ParseInt(values[len(values)-1], 10, 64)
}
