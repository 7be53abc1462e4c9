// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// External is an etcd cluster that Kindred does not run.
type External struct {
	Servers       []string
	CA, Cert, Key string
}

// Connect opens a client to an external etcd and waits until it answers.
func (e External) Connect(ctx context.Context, c clock.Clock, r Retention) (*Backend, error) {
	conf := clientv3.Config{
		Endpoints:            e.Servers,
		DialTimeout:          20 * time.Second,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		MaxCallSendMsgSize:   maxRequestBytes,
		Logger:               zap.NewNop(),
	}
	if e.CA != "" || e.Cert != "" {
		tls, err := transport.TLSInfo{TrustedCAFile: e.CA, CertFile: e.Cert, KeyFile: e.Key}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("etcd certificates: %w", err)
		}
		conf.TLS = tls
	}
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(e.Servers, ","), err)
	}
	b := newBackend(ctx, client, e.Servers[0], c, r)
	b.shared = true
	if err := b.Check(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("%s: %w; is it running, and are --etcd-servers and the certificates right?", strings.Join(e.Servers, ","), err)
	}
	return b, nil
}
