// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcd runs etcd for tests of servers that share one.
package etcd

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startLimit is the time that an etcd may take to have a leader on a busy machine.
const startLimit = time.Minute

// Server is an etcd in this process.
type Server struct {
	// Address is the host and port for clients.
	Address string
	// Close stops it. It stops at the end of the test in any case.
	Close func()
}

// Local starts an etcd in this process, at a free port of loopback. Its elections are ten times as fast as by default.
func Local(t *testing.T, dir string) Server {
	t.Helper()
	conf := config("default", dir)
	setURLs(conf, url.URL{Scheme: "http", Host: "127.0.0.1:0"}, url.URL{Scheme: "http", Host: "127.0.0.1:0"})
	conf.AdvertisePeerUrls[0].Host = "127.0.0.1:1" // it has no peers
	conf.InitialCluster = conf.InitialClusterFromName(conf.Name)
	conf.TickMs, conf.ElectionMs = 10, 100
	return mustStart(t, conf)
}

// At starts an etcd in this process, at the usual ports of an address, and returns its URL.
func At(t *testing.T, dir, address string) string {
	t.Helper()
	conf := member(Member{Name: "default", Dir: dir, Address: address})
	conf.InitialCluster = conf.InitialClusterFromName(conf.Name)
	mustStart(t, conf)
	return ClientURL(address)
}

func mustStart(t *testing.T, conf *embed.Config) Server {
	t.Helper()
	e, err := start(conf)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(e.Close)
	t.Cleanup(stop)
	return Server{Address: e.Clients[0].Addr().String(), Close: stop}
}

// Member is a member of a cluster, in a process of its own.
type Member struct {
	Name, Dir, Address string
	// Cluster has the names and URLs of all members, as etcd's flag --initial-cluster.
	Cluster string
}

// Serve runs a member until the process ends.
func Serve(m Member) error {
	conf := member(m)
	conf.InitialCluster = m.Cluster
	e, err := start(conf)
	if err != nil {
		return err
	}
	return <-e.Err()
}

// ClientURL is where clients reach a member with this address, PeerURL where other members do.
func ClientURL(address string) string { return "http://" + address + ":2379" }

func PeerURL(address string) string { return "http://" + address + ":2380" }

func member(m Member) *embed.Config {
	conf := config(m.Name, m.Dir)
	setURLs(conf, url.URL{Scheme: "http", Host: m.Address + ":2379"}, url.URL{Scheme: "http", Host: m.Address + ":2380"})
	return conf
}

func config(name, dir string) *embed.Config {
	conf := embed.NewConfig()
	conf.Name, conf.Dir, conf.LogLevel = name, dir, "fatal"
	return conf
}

func setURLs(conf *embed.Config, client, peer url.URL) {
	conf.ListenClientUrls, conf.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	conf.ListenPeerUrls, conf.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
}

func start(conf *embed.Config) (*embed.Etcd, error) {
	if err := os.MkdirAll(conf.Dir, 0o700); err != nil {
		return nil, err
	}
	e, err := embed.StartEtcd(conf)
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", conf.Name, err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-time.After(startLimit):
		err = errors.New("not ready")
	}
	e.Close()
	return nil, fmt.Errorf("etcd %s: %w", conf.Name, err)
}
