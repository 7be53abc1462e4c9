// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/kindred-project/kindred/test/conformance/suiteimages"
)

// mirror serves the images on an address of this machine, for specs with the pull policy Always, and
// configures the runtimes to use it. hosts are their directories.
func mirror(archives []suiteimages.Archive, address netip.Addr, hosts []string) (stop func(), err error) {
	m, err := suiteimages.NewMirror(archives)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
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
	for _, dir := range hosts {
		if err := suiteimages.WriteHosts(dir, "http://"+listener.Addr().String()); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}
