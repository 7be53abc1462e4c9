// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// resetAfter is the time without a failure after which the backoff begins again.
const resetAfter = 2 * time.Minute

var backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: time.Minute}

// Run serves the registration of plugins until ctx ends. After a failure it tries again.
func (m *Manager) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	defer m.watches.Wait()
	defer m.stopAdding()
	delay := backoff.DelayWithReset(m.options.Clock, resetAfter)
	for {
		err := m.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Device plugins cannot register on this node; retrying")
		select {
		case <-ctx.Done():
			return
		case <-m.options.Clock.After(delay()):
		}
	}
}

// stopAdding returns when no call of add can start another watch: it sees under the lock that the context has ended.
func (m *Manager) stopAdding() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

// serve removes the sockets of the directory and serves the registration.
func (m *Manager) serve(ctx context.Context) error {
	if err := m.removeSockets(); err != nil {
		return err
	}
	listener, err := net.Listen("unix", filepath.Join(m.options.Dir, filepath.Base(api.KubeletSocket)))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, &registration{manager: m})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(listener)
}

func (m *Manager) removeSockets() error {
	entries, err := os.ReadDir(m.options.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(m.options.Dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// registration implements the API by which plugins register.
type registration struct {
	api.UnimplementedRegistrationServer
	manager *Manager
}

// Register implements the API.
func (r *registration) Register(ctx context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	m := r.manager
	if err := checkVersion(request.Version); err != nil {
		return nil, err
	}
	if err := checkName(request.ResourceName); err != nil {
		return nil, err
	}
	return &api.Empty{}, m.Register(ctx, request.ResourceName, filepath.Join(m.options.Dir, request.Endpoint), nil)
}

func checkVersion(versions ...string) error {
	for _, v := range versions {
		if slices.Contains(api.SupportedVersions[:], v) {
			return nil
		}
	}
	return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", strings.Join(versions, ", "), api.SupportedVersions)
}

// checkName returns why a name is not that of an extended resource.
func checkName(name string) error {
	native := !strings.Contains(name, "/") || strings.Contains(name, v1.ResourceDefaultNamespacePrefix)
	if native || strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix) || len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) > 0 {
		return fmt.Errorf("the ResourceName %q is invalid", name)
	}
	return nil
}

// Validate implements plugins.Handler.
func (m *Manager) Validate(name, _ string, versions []string) error {
	if checkVersion(versions...) != nil {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %v", api.Version, versions)
	}
	if err := checkName(name); err != nil {
		return fmt.Errorf("invalid name of device plugin socket: %w", err)
	}
	return nil
}

// Register implements plugins.Handler.
func (m *Manager) Register(ctx context.Context, name, endpoint string, _ []string) error {
	p, err := connect(ctx, name, endpoint)
	if err != nil {
		return err
	}
	if err := m.add(p); err != nil {
		return err
	}
	if m.options.Observer != nil {
		m.options.Observer.PluginRegistered(name)
	}
	klog.FromContext(ctx).Info("Registered a device plugin", "resource", name, "endpoint", endpoint)
	return nil
}

// Deregister implements plugins.Handler. The watch of the plugin's devices ends with its connection.
func (m *Manager) Deregister(_ context.Context, name, endpoint string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.resources[name]; r != nil {
		for _, p := range r.plugins {
			if p.socket == endpoint {
				p.conn.Close()
			}
		}
	}
}
