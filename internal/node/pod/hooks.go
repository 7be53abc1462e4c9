// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cri "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/clock"
)

// maxHookReply is how much of an HTTP hook's reply is read, only to let the
// connection end well.
const maxHookReply = 10 * 1024

// Hooks runs lifecycle hooks against real containers. It is the node's Handlers.
type Hooks struct {
	Runtime cri.RuntimeService
	Clock   clock.Clock
}

// Run implements Handlers.
func (h Hooks) Run(ctx context.Context, pod *v1.Pod, c *v1.Container, containerID string, handler *v1.LifecycleHandler) (string, error) {
	where := fmt.Sprintf("for Container %q in Pod %q failed", c.Name, nameAndUID(pod))
	switch {
	case handler.Exec != nil:
		stdout, stderr, err := h.Runtime.ExecSync(ctx, containerID, handler.Exec.Command, 0)
		if err != nil {
			return fmt.Sprintf("Exec lifecycle hook (%v) %s - error: %v, message: %q", handler.Exec.Command, where, err, string(append(stdout, stderr...))), err
		}
	case handler.HTTPGet != nil:
		if err := hookHTTP(ctx, pod, c, handler.HTTPGet); err != nil {
			return fmt.Sprintf("HTTP lifecycle hook (%s) %s - error: %v", handler.HTTPGet.Path, where, err), err
		}
	case handler.Sleep != nil:
		select {
		case <-ctx.Done():
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

// hookHTTP sends the hook's request. Any reply counts; one over plain HTTP to an
// HTTPS request makes it try again without TLS, as the kubelet does.
func hookHTTP(ctx context.Context, pod *v1.Pod, c *v1.Container, get *v1.HTTPGetAction) error {
	request, err := hookRequest(ctx, pod, c, get)
	if err != nil {
		return err
	}
	// The hook's server is the container itself: there is nobody to vouch for its certificate.
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
		Proxy:             nil,
	}}
	reply, err := client.Do(request)
	if err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		request.URL.Scheme = "http"
		request.Header.Del("Authorization")
		reply, err = client.Do(request)
	}
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	_, _ = io.CopyN(io.Discard, reply.Body, maxHookReply)
	return nil
}

func hookRequest(ctx context.Context, pod *v1.Pod, c *v1.Container, get *v1.HTTPGetAction) (*http.Request, error) {
	host := get.Host
	if host == "" {
		host = pod.Status.PodIP
	}
	if host == "" {
		return nil, fmt.Errorf("failed to find networking container: the pod has no IP")
	}
	port, err := portNumber(get.Port, c)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(get.Path)
	if err != nil {
		target = &url.URL{Path: get.Path}
	}
	target.Scheme = "http"
	if get.Scheme != "" {
		target.Scheme = strings.ToLower(string(get.Scheme))
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "kube-lifecycle/1.37")
	request.Header.Set("Accept", "*/*")
	for _, header := range get.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			request.Host = header.Value
			continue
		}
		request.Header.Add(header.Name, header.Value)
	}
	return request, nil
}

// portNumber resolves a port by number or by the name it has in the container.
func portNumber(port intstr.IntOrString, c *v1.Container) (int, error) {
	if port.Type == intstr.Int {
		return checkPort(port.IntValue())
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return checkPort(int(p.ContainerPort))
		}
	}
	if number, err := strconv.Atoi(port.StrVal); err == nil {
		return checkPort(number)
	}
	return 0, fmt.Errorf("couldn't find port: %v in container %s", port.StrVal, c.Name)
}

func checkPort(number int) (int, error) {
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", number)
	}
	return number, nil
}
