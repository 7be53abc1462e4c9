// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/httpget"
)

// maxHookReply is how much of an HTTP hook's response is read, so that the connection ends cleanly.
const maxHookReply = 10 * 1024

// Hooks runs the lifecycle hooks of real containers. It implements Handlers.
type Hooks struct {
	Runtime  cri.RuntimeService
	Clock    clock.Clock
	Recorder record.EventRecorder
	// Observer counts what hooks do, if set.
	Observer HookObserver
}

// HookObserver counts what hooks do. *metrics.Metrics implements it.
type HookObserver interface {
	// HookFellBack counts an HTTPS request that succeeded in plain HTTP.
	HookFellBack()
	// SleepInterrupted counts a sleep that did not end in time.
	SleepInterrupted()
}

// observe counts something, if anything is counted.
func (h Hooks) observe(count func(HookObserver)) {
	if h.Observer != nil {
		count(h.Observer)
	}
}

// Run implements Handlers.
func (h Hooks) Run(ctx context.Context, pod *v1.Pod, c *v1.Container, containerID string, handler *v1.LifecycleHandler) (string, error) {
	where := fmt.Sprintf("for Container %q in Pod %q failed", c.Name, criconfig.FullName(pod))
	switch {
	case handler.Exec != nil:
		stdout, stderr, err := h.Runtime.ExecSync(ctx, containerID, handler.Exec.Command, 0)
		if err != nil {
			return fmt.Sprintf("Exec lifecycle hook (%v) %s - error: %v, message: %q", handler.Exec.Command, where, err, string(append(stdout, stderr...))), err
		}
	case handler.HTTPGet != nil:
		if err := h.hookHTTP(ctx, pod, c, handler.HTTPGet); err != nil {
			return fmt.Sprintf("HTTP lifecycle hook (%s) %s - error: %v", handler.HTTPGet.Path, where, err), err
		}
	case handler.Sleep != nil:
		select {
		case <-ctx.Done():
			h.observe(HookObserver.SleepInterrupted)
			err := fmt.Errorf("container terminated before sleep hook finished")
			return fmt.Sprintf("Sleep lifecycle hook (%d) %s - error: %v", handler.Sleep.Seconds, where, err), err
		case <-h.Clock.After(time.Duration(handler.Sleep.Seconds) * time.Second):
		}
	default:
		err := fmt.Errorf("invalid handler: %v", handler)
		return "Cannot run handler: " + err.Error(), err
	}
	return "", nil
}

// hookHTTP sends the hook's request. Any response is a success. If the server answers an HTTPS
// request in plain HTTP, the request is repeated without TLS, as in the kubelet.
func (h Hooks) hookHTTP(ctx context.Context, pod *v1.Pod, c *v1.Container, get *v1.HTTPGetAction) error {
	request, err := hookRequest(ctx, pod, c, get)
	if err != nil {
		return err
	}
	// The server is the container itself, whose certificate no authority signs.
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
		Proxy:             nil,
	}}
	reply, err := client.Do(request)
	if err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		request.URL.Scheme = "http"
		request.Header.Del("Authorization")
		if reply, err = client.Do(request); err == nil {
			h.observe(HookObserver.HookFellBack)
			h.Recorder.Event(Reference(pod), v1.EventTypeWarning, "LifecycleHTTPFallback",
				fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", request.URL.Host))
		}
	}
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	_, _ = io.CopyN(io.Discard, reply.Body, maxHookReply)
	return nil
}

func hookRequest(ctx context.Context, pod *v1.Pod, c *v1.Container, get *v1.HTTPGetAction) (*http.Request, error) {
	if get.Host == "" && pod.Status.PodIP == "" {
		return nil, fmt.Errorf("failed to find networking container: the pod has no IP")
	}
	return httpget.NewRequest(ctx, get, c, pod.Status.PodIP, "kube-lifecycle/1.37")
}
