// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
)

// newWatcher returns a watcher of an embedded server. That of etcd's v3client connects client and server
// by unbuffered channels, which deadlock when many watches are cancelled while events arrive: the client
// sends a request, the server waits until its last response is taken, and the client takes responses
// only between two requests. All watches of the process would then be silent for good. A network
// connection buffers both directions; here the requests are buffered.
//
// The watcher calls received with the revision of each event, before it passes the event on.
//
// After the client is closed, ended waits until the server has ended all watches. They read the database,
// which the server closes when it stops.
func newWatcher(server *etcdserver.EtcdServer, client *clientv3.Client, received func(revision int64)) (w clientv3.Watcher, ended func()) {
	counted := &countedWatches{WatchServer: v3rpc.NewWatchServer(server)}
	direct := adapter.WatchServerToWatchClient(counted)
	return clientv3.NewWatchFromWatchClient(watchClient{direct, received}, client), counted.running.Wait
}

// countedWatches counts the streams of watches that a server serves.
type countedWatches struct {
	pb.WatchServer
	running sync.WaitGroup
}

// Watch implements pb.WatchServer.
func (c *countedWatches) Watch(stream pb.Watch_WatchServer) error {
	c.running.Add(1)
	defer c.running.Done()
	return c.WatchServer.Watch(stream)
}

type watchClient struct {
	pb.WatchClient
	received func(revision int64)
}

func (c watchClient) Watch(ctx context.Context, options ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	direct, err := c.WatchClient.Watch(ctx, options...)
	if err != nil {
		return nil, err
	}
	s := &watchStream{Watch_WatchClient: direct, received: c.received, added: make(chan struct{}, 1)}
	go s.pass()
	return s, nil
}

// watchStream is a stream of watches whose Send never blocks. A client sends at most two requests for
// each of its watches, and some for progress, so that the buffer needs no limit.
type watchStream struct {
	pb.Watch_WatchClient
	received func(revision int64)

	mu       sync.Mutex
	requests []*pb.WatchRequest
	closed   bool
	// added has an element if the requests or closed have changed.
	added chan struct{}
}

// Send implements pb.Watch_WatchClient. If the stream fails, Recv reports it.
func (s *watchStream) Send(r *pb.WatchRequest) error {
	s.change(func() { s.requests = append(s.requests, r) })
	return s.Context().Err()
}

// Recv implements pb.Watch_WatchClient.
func (s *watchStream) Recv() (*pb.WatchResponse, error) {
	response, err := s.Watch_WatchClient.Recv()
	if err == nil && len(response.Events) > 0 {
		s.received(response.Events[len(response.Events)-1].Kv.ModRevision)
	}
	return response, err
}

// CloseSend implements pb.Watch_WatchClient.
func (s *watchStream) CloseSend() error {
	s.change(func() { s.closed = true })
	return nil
}

func (s *watchStream) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// take returns the requests since its last call, and whether they are the last ones.
func (s *watchStream) take() (requests []*pb.WatchRequest, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests, s.requests = s.requests, nil
	return requests, s.closed
}

// pass passes the requests to the server until the stream ends.
func (s *watchStream) pass() {
	for {
		select {
		case <-s.Context().Done():
			return
		case <-s.added:
		}
		requests, last := s.take()
		for _, r := range requests {
			if s.Watch_WatchClient.Send(r) != nil {
				return
			}
		}
		if last {
			_ = s.Watch_WatchClient.CloseSend()
			return
		}
	}
}
