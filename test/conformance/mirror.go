// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/kindred-project/kindred/test/conformance/suiteimages"
)

// mirror serves the images on loopback, for specs with the pull policy Always, and configures the
// runtime to use it.
func mirror(archives []suiteimages.Archive, hosts string) (stop func(), err error) {
	m, err := suiteimages.NewMirror(archives)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- m.Serve(ctx, listener) }()
	stop = func() {
		cancel()
		if err := errors.Join(<-served, m.Close()); err != nil {
			fmt.Fprintln(os.Stderr, "the registry of the suite's images:", err)
		}
	}
	if err := suiteimages.WriteHosts(hosts, "http://"+listener.Addr().String()); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}
