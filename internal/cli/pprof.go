// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"net/http"
	"net/http/pprof"
	"os"
)

// pprofVariable names an address on loopback where "up" serves profiles of
// itself, for those who work on Kindred.
const pprofVariable = "KINDRED_PPROF"

// servePprof serves profiles where the environment says so. They tell what is in
// memory, so that no other machine may ask for them.
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
