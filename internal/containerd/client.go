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

// dial makes a connection that serves both CRI's and containerd's API: containerd
// has them on one socket. Nothing is sent yet.
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

// inNamespace says which containerd namespace a call is about.
func inNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", Namespace)
}

// inLease makes what a call creates belong to a lease, which keeps it from
// containerd's garbage collector until something refers to it.
func inLease(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-lease", id)
}

// ready tells whether CRI answers and has all its conditions true.
func ready(ctx context.Context, conn grpc.ClientConnInterface) error {
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

// hasImage tells whether CRI knows an image.
func hasImage(ctx context.Context, conn grpc.ClientConnInterface, ref string) (bool, error) {
	answer, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(ctx,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return false, plain(err)
	}
	return answer.GetImage() != nil, nil
}

// awaitImage waits until CRI, which learns of images by events, knows one.
func awaitImage(ctx context.Context, c clock.Clock, conn grpc.ClientConnInterface, ref string) error {
	return poll(ctx, c, 10*time.Second, func() error {
		present, err := hasImage(ctx, conn, ref)
		if err == nil && !present {
			err = fmt.Errorf("the runtime does not list image %s", ref)
		}
		return err
	})
}

// plain strips what gRPC puts around a message.
func plain(err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	return errors.New(s.Message())
}
