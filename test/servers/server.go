// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

// Both servers have the same service CIDR, issuer and administrator, because responses contain them.
const (
	serviceCIDR = "10.96.0.0/16"
	admin       = "kubernetes-admin"
	adminGroup  = "system:masters"
	// issuer is Kindred's issuer.
	issuer = "https://kubernetes.default.svc.cluster.local"
)

// Server is a running API server.
type Server struct {
	Name string
	// Config has all permissions and no QPS limit.
	Config *rest.Config
	// Data is Kindred's data directory, and Kubeconfig a kubeconfig for the server.
	Data, Kubeconfig string
	// processes are the processes of the server, in the order of their start.
	processes []*process
}

// Stop stops the processes, the last one first.
func (s *Server) Stop() {
	for _, p := range slices.Backward(s.processes) {
		p.stop()
	}
}

// Kill kills the processes with SIGKILL, as a crash does.
func (s *Server) Kill() {
	for _, p := range slices.Backward(s.processes) {
		p.kill()
	}
}

// ProcessorTime returns the CPU time that the processes have used so far.
func (s *Server) ProcessorTime() (sum time.Duration) {
	for _, p := range s.processes {
		sum += ProcessorTime(p.cmd.Process.Pid)
	}
	return sum
}

// PIDs returns the IDs of the processes.
func (s *Server) PIDs() (all []int) {
	for _, p := range s.processes {
		all = append(all, p.cmd.Process.Pid)
	}
	return all
}

// CheckRunning returns an error if a process of the server has ended.
func (s *Server) CheckRunning() error {
	var ended []error
	for _, p := range s.processes {
		ended = append(ended, p.checkRunning())
	}
	return errors.Join(ended...)
}

// RuntimeEndpoint returns the CRI endpoint of the node of Kindred's cluster with this data directory.
func RuntimeEndpoint(data string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, "kindred.json"))
	if err != nil {
		return "", err
	}
	var instance struct {
		ContainerRuntime string `json:"containerRuntime"`
	}
	return instance.ContainerRuntime, json.Unmarshal(text, &instance)
}

// connect sets the client configuration of the server.
func (s *Server) connect(config *rest.Config) {
	config.QPS = -1
	config.Timeout = startLimit
	s.Config = config
}

// checkReady returns an error unless the server is ready.
func (s *Server) checkReady(ctx context.Context) error {
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return err
	}
	return checkHealth(ctx, client, s.Config.Host+"/readyz")
}

// checkHealth returns an error unless the response of a health endpoint is 200.
func checkHealth(ctx context.Context, client *http.Client, url string) error {
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
