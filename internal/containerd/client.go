// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// maxMessage is containerd's own default limit for a message.
const maxMessage = 16 << 20

// dial returns a connection for the APIs of CRI and of containerd, which share a socket. It connects with the
// first call.
func dial(endpoint string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %s: %w", endpoint, err)
	}
	return conn, nil
}

// inNamespace sets the containerd namespace of a call.
func inNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", Namespace)
}

// inLease adds what a call creates to a lease, which protects it from containerd's garbage collector until
// something refers to it.
func inLease(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-lease", id)
}

// checkReady returns an error unless CRI responds with all required conditions true.
func checkReady(ctx context.Context, conn grpc.ClientConnInterface) error {
	answer, err := runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{})
	if status.Code(err) == codes.Unimplemented {
		return final{errors.New("its CRI plugin did not load")}
	}
	if err != nil {
		return plain(err)
	}
	for _, c := range answer.GetStatus().GetConditions() {
		required := c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady
		if required && !c.Status {
			return fmt.Errorf("%s: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return nil
}

// hasImage reports whether CRI has an image.
func hasImage(ctx context.Context, conn grpc.ClientConnInterface, ref string) (bool, error) {
	answer, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(ctx,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return false, plain(err)
	}
	return answer.GetImage() != nil, nil
}

// awaitImage waits until CRI has an image. It learns of imports from events.
func awaitImage(ctx context.Context, c clock.Clock, conn grpc.ClientConnInterface, ref string) error {
	return poll(ctx, c, 10*time.Second, func() error {
		present, err := hasImage(ctx, conn, ref)
		if err == nil && !present {
			err = fmt.Errorf("the runtime does not list image %s", ref)
		}
		return err
	})
}

// plain returns an error with the message only, without gRPC's prefix.
func plain(err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	return errors.New(s.Message())
}
