// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Program adapter serves custom.metrics.k8s.io and external.metrics.k8s.io with
// sigs.k8s.io/custom-metrics-apiserver, whose test provider keeps the values that are written to it
// over HTTP. It is upstream's test-adapter, except that it listens for these values on loopback. It is a
// module of its own, so that the product does not depend on it.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/emicklei/go-restful/v3"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	"sigs.k8s.io/custom-metrics-apiserver/test-adapter/provider"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	adapter := &cmd.AdapterBase{Name: "adapter"}
	values := adapter.Flags().String("values", "127.0.0.1:8080", "address for POST /write-metrics/...")
	if err := adapter.Flags().Parse(os.Args); err != nil {
		return err
	}
	client, err := adapter.DynamicClient()
	if err != nil {
		return err
	}
	mapper, err := adapter.RESTMapper()
	if err != nil {
		return err
	}
	metrics, service := provider.NewFakeProvider(client, mapper)
	adapter.WithCustomMetrics(metrics)
	adapter.WithExternalMetrics(metrics)
	go func() {
		written := restful.NewContainer().Add(service)
		server := &http.Server{Addr: *values, Handler: written, ReadHeaderTimeout: 10 * time.Second}
		fmt.Fprintln(os.Stderr, server.ListenAndServe())
		os.Exit(1)
	}()
	return adapter.Run(context.Background())
}
