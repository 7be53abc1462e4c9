// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// MarkStarted marks the end of the start. After that, an object that cannot be decoded fails only the
// request that reads it, as upstream.
func (b *Backend) MarkStarted() { b.started.Store(true) }

// wrapDecoder wraps the decoder of a built-in resource in the embedded store in a startDecoder.
// Otherwise, a watch cache whose first list cannot be decoded would never sync, and the start would
// wait for it without a message. Custom resources are not wrapped, because decoding them may also
// fail while a conversion webhook is not ready.
func (b *Backend) wrapDecoder(resource schema.GroupResource, newFunc func() runtime.Object, d etcd3.Decoder) etcd3.Decoder {
	if _, custom := newFunc().(*unstructured.Unstructured); custom || b.failed == nil {
		return d
	}
	return startDecoder{d, b, resource}
}

// startDecoder fails the start on an object that cannot be decoded.
type startDecoder struct {
	etcd3.Decoder
	backend  *Backend
	resource schema.GroupResource
}

// DecodeListItem implements etcd3.Decoder.
func (d startDecoder) DecodeListItem(ctx context.Context, data []byte, revision uint64, newItem func() runtime.Object) (runtime.Object, error) {
	object, err := d.Decoder.DecodeListItem(ctx, data, revision, newItem)
	if err != nil && ctx.Err() == nil && !d.backend.started.Load() {
		startErr := fmt.Errorf("one of the %s in the store in %s (revision %d) can't be decoded: %w; restore the store from a backup, or drop the damaged objects with \"kindred check-store --drop-damaged\"",
			d.resource, d.backend.dir, revision, err)
		select {
		case d.backend.failed.reported <- startErr:
		default: // Another failure is reported already.
		}
	}
	return object, err
}
