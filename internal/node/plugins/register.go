// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	infoLimit   = 10 * time.Second
	notifyLimit = 5 * time.Second
)

// register asks the driver behind a socket what it is, registers it, and tells it the result.
func (w *Watcher) register(ctx context.Context, path string) (*plugin, error) {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	limited, cancel := context.WithTimeout(ctx, infoLimit)
	defer cancel()
	info, err := client.GetInfo(limited, &registerapi.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket %s, err: %w", path, err)
	}
	added := &plugin{kind: info.Type, name: info.Name, endpoint: info.Endpoint}
	if added.endpoint == "" {
		added.endpoint = path
	}
	if err := w.admit(ctx, path, added, info.SupportedVersions); err != nil {
		return nil, errors.Join(err, notify(ctx, client, err.Error()))
	}
	if err := notify(ctx, client, ""); err != nil {
		w.options.Handlers[added.kind].Deregister(ctx, added.name, added.endpoint)
		return nil, fmt.Errorf("RegisterPlugin error -- failed to send registration status at socket %s, err: %w", path, err)
	}
	return added, nil
}

// admit registers the driver with the handler of its type.
func (w *Watcher) admit(ctx context.Context, path string, p *plugin, versions []string) error {
	handler := w.options.Handlers[p.kind]
	if handler == nil {
		return fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s", p.kind, path)
	}
	if err := handler.Validate(p.name, p.endpoint, versions); err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
	}
	if err := handler.Register(ctx, p.name, p.endpoint, versions); err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err)
	}
	return nil
}

// notify tells a driver whether it is registered: problem is empty, or why not.
func notify(ctx context.Context, client registerapi.RegistrationClient, problem string) error {
	ctx, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	_, err := client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: problem == "", Error: problem})
	return err
}
