// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package localgrpc serves the gRPC APIs of the node agent that clients on the same machine use through a socket.
package localgrpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The limits of unary requests for all clients together, those of pkg/kubelet/apis/podresources and pkg/kubelet/apis/pods.
const (
	requestsPerSecond = 100
	requestsAtOnce    = 10
)

// resetAfter is the time without a failure after which the backoff begins again.
const resetAfter = 2 * time.Minute

var backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: time.Minute}

// Server serves an API. Unary requests are limited; streams are not.
type Server struct {
	// Name is the API in messages, such as "PodResources".
	Name string
	// Register registers the API's services.
	Register func(grpc.ServiceRegistrar)
	// Requested is called, if set, after each request that the limit accepts, with the service's version and the method
	// ("v1", "List"). For a stream, that is when it ends.
	Requested func(version, method string, err error)
	// Clock times the backoff of Run.
	Clock clock.Clock
}

// Run serves the API at a socket until ctx ends. After a failure it tries again.
func (s *Server) Run(ctx context.Context, socket string) {
	delay := backoff.DelayWithReset(s.Clock, resetAfter)
	logged := ""
	for {
		err := s.Serve(ctx, socket)
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); text != logged {
			klog.FromContext(ctx).Error(err, "The "+s.Name+" API is not served on this node; retrying")
			logged = text
		}
		select {
		case <-ctx.Done():
			return
		case <-s.Clock.After(delay()):
		}
	}
}

// Serve serves the API at a socket until ctx ends. It replaces what an earlier process left there.
func (s *Server) Serve(ctx context.Context, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestsAtOnce)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit(limiter), s.countUnary), grpc.StreamInterceptor(s.countStream))
	s.Register(server)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(listener)
}

func limit(limiter flowcontrol.PassiveRateLimiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !limiter.TryAccept() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return handle(ctx, request)
	}
}

func (s *Server) countUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	s.count(info.FullMethod, err)
	return response, err
}

func (s *Server) countStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := handle(server, stream)
	s.count(info.FullMethod, err)
	return err
}

// count reports a request. The full name of a method is like /v1.PodResourcesLister/List.
func (s *Server) count(fullMethod string, err error) {
	if s.Requested == nil {
		return
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	version, _, _ := strings.Cut(service, ".")
	s.Requested(version, method, err)
}
