// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// pods serves /pods: the pods that the API binds to the node, with their newest statuses.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) { writePods(w, s.options.Lookup.Pods()) }

// runningPods serves /runningpods/: the pods that the runtime runs.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := s.options.RunningPods(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	writePods(w, pods)
}

func writePods(w http.ResponseWriter, pods []*v1.Pod) {
	list := v1.PodList{}
	list.APIVersion, list.Kind = "v1", "PodList"
	list.Items = []v1.Pod{}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	writeJSON(w, &list)
}

// summary serves /stats/summary.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	only := false
	if text := r.URL.Query().Get("only_cpu_and_memory"); text != "" {
		var err error
		if only, err = strconv.ParseBool(text); err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("only_cpu_and_memory is %q, and must be true or false", text))
			return
		}
	}
	summary, err := s.options.Summary(r.Context(), only)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Cannot measure what the node and its pods use")
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, summary)
}

// configz serves /configz: the configuration of the agent, with its defaults.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"kubeletconfig": &s.options.Config.KubeletConfiguration})
}

func writeJSON(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// profiles serves /debug/pprof/.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// setVerbosity sets the verbosity of the process's log, for /debug/flags/v.
func setVerbosity(value string) (string, error) {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	if err := flags.Set("v", value); err != nil {
		return "", fmt.Errorf("set the verbosity of the log to %q: %w", value, err)
	}
	return "successfully set klog.logging.verbosity to " + value, nil
}
