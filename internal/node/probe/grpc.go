// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// probeGRPC succeeds if the server's health service (grpc.health.v1) responds with SERVING. Everything
// else is a failure, as in the grpc_health_probe tool.
func probeGRPC(ctx context.Context, action *v1.GRPCAction, podIP string, timeout time.Duration) (outcome, string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	service := ""
	if action.Service != nil {
		service = *action.Service
	}
	address := net.JoinHostPort(podIP, strconv.Itoa(int(action.Port)))
	connection, err := connect(ctx, address)
	if err != nil {
		return failure, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, err), nil
	}
	defer connection.Close()
	answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return failure, healthError(err, timeout), nil
	}
	if answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return failure, fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus().String()), nil
	}
	return success, "service healthy", nil
}

// connect returns a connection that is ready.
func connect(ctx context.Context, address string) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent(userAgent),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer().DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return nil, err
	}
	connection.Connect()
	for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
		if !connection.WaitForStateChange(ctx, state) {
			_ = connection.Close()
			return nil, ctx.Err()
		}
		connection.Connect() // a lost connection becomes idle
	}
	return connection, nil
}

// healthError returns grpc_health_probe's message for an error.
func healthError(err error, timeout time.Duration) string {
	switch answer := status.Convert(err); answer.Code() {
	case codes.Unimplemented:
		return fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", answer.Message())
	case codes.DeadlineExceeded:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	}
	return fmt.Sprintf("error: health rpc probe failed: %v", err)
}
