// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/logs"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// logBuffer is how much of a log is buffered before it is sent.
const logBuffer = 32 << 10

// logs serves GET /containerLogs/{namespace}/{pod}/{container}.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	query, err := parseLogQuery(r.URL.Query(), s.options.Clock.Now())
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	pod, ok := s.options.Lookup.Pod(r.PathValue("namespace"), r.PathValue("pod"), "")
	if !ok {
		fail(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")))
		return
	}
	name := r.PathValue("container")
	if !declares(pod, name) {
		fail(w, http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", name, pod.Name))
		return
	}
	instance, err := s.instance(r.Context(), pod, name, query.previous)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.copyLog(w, r, pod.UID, name, instance, query)
}

// copyLog sends the log. After the first byte, an error can no longer be reported and ends the response.
func (s *Server) copyLog(w http.ResponseWriter, r *http.Request, uid types.UID, name string, instance nodepod.ContainerInstance, query logQuery) {
	body := &response{ResponseWriter: w}
	buffer := bufio.NewWriterSize(body, logBuffer)
	query.options.Clock = s.options.Clock
	query.options.Running = func() bool {
		now, ok := s.options.Lookup.Container(r.Context(), uid, name, query.previous)
		return ok && now.ID == instance.ID && now.Running
	}
	query.options.Flush = func() error {
		if err := buffer.Flush(); err != nil {
			return err
		}
		return body.flush()
	}
	var stdout, stderr io.Writer
	if query.stream != v1.LogStreamStderr {
		stdout = buffer
	}
	if query.stream != v1.LogStreamStdout {
		stderr = buffer
	}
	err := logs.Read(r.Context(), instance.LogPath, query.options, stdout, stderr)
	if err != nil && !body.begun && buffer.Buffered() == 0 {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	_ = buffer.Flush()
}

// response records whether the response has begun.
type response struct {
	http.ResponseWriter
	begun bool
}

func (r *response) Write(p []byte) (int, error) {
	r.begin()
	return r.ResponseWriter.Write(p)
}

func (r *response) begin() {
	if !r.begun {
		r.begun = true
		r.Header().Set("Content-Type", "text/plain")
	}
}

func (r *response) flush() error {
	r.begin()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// instance returns the run of the container whose log is requested. If there is none, the error is
// the reason.
func (s *Server) instance(ctx context.Context, pod *v1.Pod, name string, previous bool) (nodepod.ContainerInstance, error) {
	instance, ok := s.options.Lookup.Container(ctx, pod.UID, name, previous)
	if ok {
		return instance, nil
	}
	return nodepod.ContainerInstance{}, unavailable(pod, name, previous)
}

// unavailable returns upstream's error for a container without a log.
func unavailable(pod *v1.Pod, name string, previous bool) error {
	status := statusOf(pod, name)
	switch {
	case status == nil:
		return fmt.Errorf("container %q in pod %q is not available", name, pod.Name)
	case previous:
		return fmt.Errorf("previous terminated container %q in pod %q not found", name, pod.Name)
	case status.State.Terminated != nil:
		return fmt.Errorf("container %q in pod %q is terminated", name, pod.Name)
	case status.State.Waiting == nil:
		return fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, pod.Name)
	}
	reason := status.State.Waiting.Reason
	switch reason {
	case "ErrImagePull":
		reason = "image can't be pulled"
	case "ImagePullBackOff":
		reason = "trying and failing to pull image"
	}
	return fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod.Name, reason)
}

func statusOf(pod *v1.Pod, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// declares reports whether the pod has a container with this name.
func declares(pod *v1.Pod, name string) bool {
	_, ok := terminal(pod, name)
	return ok
}

// terminal reports whether a container has a TTY, and whether the pod has the container.
func terminal(pod *v1.Pod, name string) (tty, found bool) {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].TTY, true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return pod.Spec.EphemeralContainers[i].TTY, true
		}
	}
	return false, false
}

// logQuery is a PodLogOptions, as the API server encodes it in a URL.
type logQuery struct {
	options  logs.Options
	previous bool
	stream   string
}

func parseLogQuery(values url.Values, now time.Time) (logQuery, error) {
	q := logQuery{options: logs.Options{Tail: -1, Limit: -1}, stream: v1.LogStreamAll}
	var err error
	flag := func(key string) bool {
		text := values.Get(key)
		if text == "" || err != nil {
			return false
		}
		var on bool
		if on, err = strconv.ParseBool(text); err != nil {
			err = fmt.Errorf("%s: invalid value %q: must be a boolean", key, text)
		}
		return on
	}
	number := func(key string, least, otherwise int64) int64 {
		text := values.Get(key)
		if text == "" || err != nil {
			return otherwise
		}
		n, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil || n < least {
			err = fmt.Errorf("%s: invalid value %q: must be a number of at least %d", key, text, least)
		}
		return n
	}
	q.options.Follow, q.previous, q.options.Timestamps = flag("follow"), flag("previous"), flag("timestamps")
	q.options.Tail, q.options.Limit = number("tailLines", 0, -1), number("limitBytes", 1, -1)
	seconds := number("sinceSeconds", 1, 0)
	if err != nil {
		return q, err
	}
	if stream := values.Get("stream"); stream != "" {
		q.stream = stream
	}
	if q.stream != v1.LogStreamAll && q.stream != v1.LogStreamStdout && q.stream != v1.LogStreamStderr {
		return q, fmt.Errorf("stream: unsupported value %q: supported values: %q, %q, %q", q.stream, v1.LogStreamAll, v1.LogStreamStderr, v1.LogStreamStdout)
	}
	since := values.Get("sinceTime")
	switch {
	case seconds > 0 && since != "":
		return q, fmt.Errorf("at most one of `sinceTime` or `sinceSeconds` may be specified")
	case seconds > 0:
		q.options.Since = now.Add(-time.Duration(seconds) * time.Second)
	case since != "":
		if q.options.Since, err = time.Parse(time.RFC3339, since); err != nil {
			return q, fmt.Errorf("sinceTime: invalid value %q: must be a time as in RFC 3339", since)
		}
	}
	return q, nil
}
