// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"runtime"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kindred-project/kindred/internal/containerd/pause"
)

// PauseImage is the reference of the sandbox image. Its tag changes with its content, so that a new version of
// Kindred imports its own.
const PauseImage = "kindred.dev/pause:1"

// ensurePause imports the pause image unless it is present.
func ensurePause(ctx context.Context, c clock.Clock, conn grpc.ClientConnInterface) (imported bool, err error) {
	present, err := hasImage(ctx, conn, PauseImage)
	if err != nil || present {
		return false, err
	}
	image, err := pauseImage(runtime.GOARCH)
	if err != nil {
		return false, err
	}
	content, err := contentOf(PauseImage, image)
	if err != nil {
		return false, err
	}
	if err := importContent(ctx, c, conn, content); err != nil {
		return false, err
	}
	return true, awaitImage(ctx, c, conn, PauseImage)
}

// pauseImage returns an OCI image that has only the pause program. It has no timestamps, so that its digest
// depends only on the program.
func pauseImage(arch string) (v1.Image, error) {
	program, err := pause.Binary(arch)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(program)), Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, l)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, pauseConfig(image, arch))
}

func pauseConfig(image v1.Image, arch string) *v1.ConfigFile {
	// The image was built in memory, so that reading its config cannot fail.
	config, _ := image.ConfigFile()
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config.Entrypoint = []string{"/pause"}
	// The user "nobody", as in upstream's image. A pod's runAsUser overrides it.
	config.Config.User = "65535:65535"
	return config
}
