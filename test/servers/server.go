// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"k8s.io/client-go/rest"
)

// Both servers have the same ranges, issuer and administrator, so that what they answer
// with does not differ for want of that.
const (
	serviceCIDR = "10.96.0.0/16"
	admin       = "kubernetes-admin"
	adminGroup  = "system:masters"
	// issuer is Kindred's.
	issuer = "https://kubernetes.default.svc.cluster.local"
)

// Server is an API server that runs.
type Server struct {
	Name string
	// Config has all rights, and no limit of queries per second.
	Config *rest.Config
	// Data is Kindred's data directory, and Kubeconfig the file that leads to the server.
	Data, Kubeconfig string
	// processes are what it is made of, in the order of their start.
	processes []*process
}

// Stop ends the processes, the last one first.
func (s *Server) Stop() {
	for _, p := range slices.Backward(s.processes) {
		p.stop()
	}
}

// Kill ends the processes with SIGKILL, as a crash does.
func (s *Server) Kill() {
	for _, p := range slices.Backward(s.processes) {
		p.kill()
	}
}

// Running is an error if a part of the server has ended.
func (s *Server) Running() error {
	var ended []error
	for _, p := range s.processes {
		ended = append(ended, p.running())
	}
	return errors.Join(ended...)
}

// connect sets how the server is reached.
func (s *Server) connect(config *rest.Config) {
	config.QPS = -1
	config.Timeout = startLimit
	s.Config = config
}

// ready asks the server whether it is.
func (s *Server) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return err
	}
	return healthy(ctx, client, s.Config.Host+"/readyz")
}

// healthy is an error unless the answer is 200.
func healthy(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	answer, err := io.ReadAll(resp.Body)
	return errors.Join(fmt.Errorf("%s: %s: %s", url, resp.Status, answer), err)
}
