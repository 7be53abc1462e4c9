// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/source"
)

// fetchLimit is the timeout of one request.
const fetchLimit = 10 * time.Second

// errEmpty is the error of an empty response. It declares that there are no pods.
var errEmpty = errors.New("the response is empty")

// URL is the source of the pods of a URL: a Pod or a PodList.
type URL struct {
	URL    string
	Header http.Header
	Node   string
	Decode Decode
	Period time.Duration
	Clock  clock.WithTicker
	// Found is called with all pods when the response has changed.
	Found func(pods []*v1.Pod)
	// Failed is called once for each error of the content.
	Failed func(url string, err error)

	last   []byte // the last response
	failed string // the last error
}

// Run requests the URL until ctx ends. The pods stay as they are while a request fails.
func (u *URL) Run(ctx context.Context) {
	ticker := u.Clock.NewTicker(u.Period)
	defer ticker.Stop()
	for {
		u.read(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (u *URL) read(ctx context.Context) {
	pods, changed, err := u.fetch(ctx)
	if ctx.Err() != nil {
		return
	}
	if changed {
		u.Found(pods)
	}
	switch {
	case err == nil && u.failed != "":
		klog.FromContext(ctx).Info("Successfully read pods from URL", "url", u.URL)
		u.failed = ""
	case err != nil && u.failed != err.Error():
		u.failed = err.Error()
		u.Failed(u.URL, err)
	}
}

// fetch returns the pods of the URL, and whether they may have changed.
func (u *URL) fetch(ctx context.Context) (pods []*v1.Pod, changed bool, err error) {
	text, err := u.get(ctx)
	switch {
	case err != nil:
		return nil, false, err
	case len(text) == 0:
		u.last = nil
		return nil, true, errEmpty
	case u.failed == "" && bytes.Equal(text, u.last):
		return nil, false, nil
	}
	pods, err = u.Decode(text, origin{node: u.Node, from: source.HTTP, at: u.URL}.complete)
	if err != nil {
		return nil, false, err
	}
	u.last = text
	return pods, true, nil
}

func (u *URL) get(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header = u.Header.Clone()
	client := http.Client{Timeout: fetchLimit}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server responds %s", response.Status)
	}
	return limited(response.Body)
}
