// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"net/http"
	"net/http/pprof"
	"os"
)

// pprofVariable names a loopback address at which "up" serves profiles of itself to Kindred's
// developers.
const pprofVariable = "KINDRED_PPROF"

// servePprof serves profiles at the address in the environment. Profiles reveal the content of
// memory, so the address must be on loopback.
func servePprof() (stop func(), err error) {
	address := os.Getenv(pprofVariable)
	if address == "" {
		return func() {}, nil
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil || !at.IP.IsLoopback() {
		return nil, usagef("%s=%s: give an address on loopback, such as 127.0.0.1:6060", pprofVariable, address)
	}
	listener, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, usagef("%s=%s: %v", pprofVariable, address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}
