// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/httpget"
)

// userAgent is the User-Agent of the kubelet whose version this node implements.
const userAgent = "kube-probe/1.37"

const maxRedirects = 10

// probeHTTP succeeds if the server responds with a status from 200 to 399.
func (m *Manager) probeHTTP(ctx context.Context, container *v1.Container, action *v1.HTTPGetAction, podIP string, timeout time.Duration) (outcome, string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := httpget.NewRequest(ctx, action, container, podIP, userAgent)
	if err != nil {
		return unknown, "", err
	}
	response, err := m.http.Do(request)
	if err != nil {
		return failure, err.Error(), nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	if err != nil && isTimeout(ctx) {
		err = errors.New("context deadline exceeded (Client.Timeout or context cancellation while reading body)")
	}
	if err != nil {
		return failure, "", err
	}
	switch code := response.StatusCode; {
	case code >= http.StatusOK && code < http.StatusMultipleChoices:
		return success, string(body), nil
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return warning, fmt.Sprintf("Probe terminated redirects, Response body: %s", body), nil
	default:
		// The event omits the body, which may be secret.
		return failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", code), nil
	}
}

// sameHost follows redirects only to the same host: a container must not make the node send requests
// to others.
func sameHost(request *http.Request, via []*http.Request) error {
	if request.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}
