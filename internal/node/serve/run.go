// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"strings"
)

// run serves POST /run/{namespace}/{pod}[/{uid}]/{container}: it runs a command without streams, and responds with what the
// command wrote. Unlike that of exec, the command is one parameter, which is split at spaces.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	_, id, ok := s.runningContainer(w, r)
	if !ok {
		return
	}
	stdout, stderr, err := s.options.Runtime.ExecSync(r.Context(), id, strings.Split(r.FormValue("cmd"), " "), 0)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(stdout, stderr...))
}
