// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpget builds the HTTP requests of probes and lifecycle hooks.
package httpget

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NewRequest returns the request of an action, to the pod's address unless the action names a host.
// The action's headers take precedence over agent, the default User-Agent.
func NewRequest(ctx context.Context, action *v1.HTTPGetAction, container *v1.Container, podIP, agent string) (*http.Request, error) {
	port, err := Port(action.Port, container)
	if err != nil {
		return nil, err
	}
	host := action.Host
	if host == "" {
		host = podIP
	}
	// A path that is not a valid URL is used as it is.
	target, err := url.Parse(action.Path)
	if err != nil {
		target = &url.URL{Path: action.Path}
	}
	target.Scheme = strings.ToLower(string(action.Scheme))
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	setHeaders(request, action.HTTPHeaders, agent)
	return request, nil
}

func setHeaders(request *http.Request, headers []v1.HTTPHeader, agent string) {
	for _, header := range headers {
		request.Header.Add(header.Name, header.Value)
	}
	request.Host = request.Header.Get("Host")
	if _, ok := request.Header["User-Agent"]; !ok {
		request.Header.Set("User-Agent", agent)
	}
	switch values, ok := request.Header["Accept"]; {
	case !ok:
		request.Header.Set("Accept", "*/*")
	case values[0] == "":
		request.Header.Del("Accept") // an empty value means no header
	}
}

// Port resolves a port number, or the name of one of the container's ports.
func Port(port intstr.IntOrString, container *v1.Container) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		number = 0
		for _, declared := range container.Ports {
			if declared.Name == port.StrVal {
				number = int(declared.ContainerPort)
			}
		}
		if number == 0 {
			return 0, fmt.Errorf("port %q not found", port.StrVal)
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", number)
	}
	return number, nil
}
