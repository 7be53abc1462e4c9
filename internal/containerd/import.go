// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
)

// ImportImages imports OCI and docker image archives, plain or gzipped, into the containerd at a CRI endpoint, and
// returns the references of the imported images. It reads all files before it imports the first.
func ImportImages(ctx context.Context, endpoint string, files ...string) ([]string, error) {
	var contents []imageContent
	for _, file := range files {
		a, err := openArchive(file)
		if err != nil {
			return nil, err
		}
		defer a.close()
		images, err := a.images()
		if err != nil {
			return nil, err
		}
		for i := range images {
			images[i].archive = a
		}
		contents = append(contents, images...)
	}
	conn, err := dial(endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var names []string
	for _, c := range contents {
		if err := importContent(ctx, clock.RealClock{}, conn, c); err != nil {
			if status.Code(err) == codes.Unimplemented {
				return names, fmt.Errorf("the container runtime at %s is not containerd; load images with its own tools, CRI-O's with: skopeo copy %s:%s containers-storage:%s",
					endpoint, c.archive.format(), c.archive.name, c.names[0])
			}
			return names, fmt.Errorf("importing %s: %w", c.names[0], plain(err))
		}
		for _, name := range c.names {
			if err := awaitImage(ctx, clock.RealClock{}, conn, name); err != nil {
				return names, fmt.Errorf("importing %s: %w", name, err)
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// importContent writes the blobs, unpacks the layers and then names the image, so that a named image is always
// complete. Until then a lease protects the blobs. It expires, so that containerd collects the blobs of an
// import that was interrupted.
func importContent(ctx context.Context, c clock.Clock, conn grpc.ClientConnInterface, content imageContent) error {
	ctx = inNamespace(ctx)
	leases := leasesapi.NewLeasesClient(conn)
	lease := "kindred-import-" + string(uuid.NewUUID())
	expires := c.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if _, err := leases.Create(ctx, &leasesapi.CreateRequest{
		ID: lease, Labels: map[string]string{"containerd.io/gc.expire": expires},
	}); err != nil {
		return err
	}
	defer func() {
		// If it fails, the lease expires.
		_, _ = leases.Delete(context.WithoutCancel(ctx), &leasesapi.DeleteRequest{ID: lease})
	}()
	leased := inLease(ctx, lease)
	snapshotter, err := usedSnapshotter(leased, conn)
	if err != nil {
		return err
	}
	chain := chainIDs(content.config.RootFS.DiffIDs)
	for _, b := range content.blobs {
		labels := b.labels()
		if b.Digest == content.manifest.Config.Digest && len(chain) > 0 {
			// The config refers to the image's snapshot, which protects it.
			labels["containerd.io/gc.ref.snapshot."+snapshotter] = chain[len(chain)-1]
		}
		if err := writeBlob(leased, conn, b, labels); err != nil {
			return fmt.Errorf("writing %s: %w", b.Digest, err)
		}
	}
	if err := unpack(leased, conn, snapshotter, content.manifest.Layers, chain); err != nil {
		return err
	}
	for _, name := range content.names {
		if err := nameImage(leased, conn, name, content.root); err != nil {
			return err
		}
	}
	return nil
}

// labels returns the labels by which containerd's garbage collector knows what the blob refers to.
func (b blob) labels() map[string]string {
	labels := map[string]string{}
	for name, digest := range b.refs {
		labels["containerd.io/gc.ref.content."+name] = digest.String()
	}
	return labels
}

// chunk is the size of one message; see maxMessage.
const chunk = 1 << 20

// writeBlob sends a blob, whose size and digest containerd verifies. A blob that exists only gets the labels.
func writeBlob(ctx context.Context, conn grpc.ClientConnInterface, b blob, labels map[string]string) error {
	client := contentapi.NewContentClient(conn)
	err := sendBlob(ctx, client, b, labels)
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	if len(labels) == 0 {
		return nil
	}
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		paths = append(paths, "labels."+key)
	}
	_, err = client.Update(ctx, &contentapi.UpdateRequest{
		Info:       &contentapi.Info{Digest: b.Digest.String(), Labels: labels},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
	})
	return err
}

func sendBlob(ctx context.Context, client contentapi.ContentClient, b blob, labels map[string]string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Write(ctx)
	if err != nil {
		return err
	}
	r, err := b.open()
	if err != nil {
		return err
	}
	request := &contentapi.WriteContentRequest{
		Action: contentapi.WriteAction_WRITE, Ref: "kindred-" + b.Digest.String(),
		Total: b.Size, Expected: b.Digest.String(),
	}
	for buffer := make([]byte, chunk); request.Action != contentapi.WriteAction_COMMIT; {
		n, err := io.ReadFull(r, buffer)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			request.Action, request.Labels = contentapi.WriteAction_COMMIT, labels
		} else if err != nil {
			return err
		}
		request.Data = buffer[:n]
		if err := exchange(stream, request); err != nil {
			return err
		}
		request.Offset += int64(n)
	}
	return nil
}

// exchange sends a request and waits for the response. If the send fails, the error is in the response.
func exchange(stream contentapi.Content_WriteClient, request *contentapi.WriteContentRequest) error {
	if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err := stream.Recv()
	return err
}

// nameImage creates the image, or updates the image of this name. The image is pinned: it may not be in any registry,
// so that it must not be removed when the disk is full.
func nameImage(ctx context.Context, conn grpc.ClientConnInterface, name string, root v1.Descriptor) error {
	client := imagesapi.NewImagesClient(conn)
	image := &imagesapi.Image{Name: name, Target: descriptor(root), Labels: map[string]string{pinnedLabel: pinned}}
	_, err := client.Create(ctx, &imagesapi.CreateImageRequest{Image: image})
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	_, err = client.Update(ctx, &imagesapi.UpdateImageRequest{
		Image: image, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"target", "labels." + pinnedLabel}},
	})
	return err
}

func descriptor(d v1.Descriptor) *types.Descriptor {
	return &types.Descriptor{MediaType: string(d.MediaType), Digest: d.Digest.String(), Size: d.Size}
}

// chainIDs returns the IDs of the layers' stacked file systems (OCI image-spec, config.md, "Layer ChainID").
func chainIDs(diffs []v1.Hash) []string {
	var chain []string
	for i, d := range diffs {
		id := d.String()
		if i > 0 {
			id = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(chain[i-1]+" "+id)))
		}
		chain = append(chain, id)
	}
	return chain
}
