// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kindred-project/kindred/internal/deletion"
)

// History reads past states of objects from etcd. It does not authorize its callers.
//
// It reads states at a revision, never the changes between two revisions: to watch from an old
// revision, etcd reads all writes since then, of all resources, and blocks new ones meanwhile.
// A revision that is no longer retained is refused like an old resourceVersion of the API, with
// the reason Expired.
type History struct{ backend *Backend }

var _ deletion.History = &History{}

// History returns a reader of past states.
func (b *Backend) History() *History { return &History{b} }

// openResource is what it takes to find and decode the objects of a resource whose storage is
// open.
type openResource struct {
	codec   runtime.Codec
	root    string // prefix of all keys
	prefix  string // prefix of the resource's keys
	keyFunc func(runtime.Object) (string, error)
	newFunc func() runtime.Object
	stats   *recentStats
}

// register remembers how a resource is stored until forget is called. Each version of a custom
// resource is registered separately; each can read the objects that all of them have stored.
func (b *Backend) register(r resourceStorage, store storage.Interface) (forget func()) {
	opened := &openResource{
		codec: r.config.Codec, root: path.Join("/", r.config.Prefix), prefix: path.Join("/", r.config.Prefix, r.prefix) + "/",
		keyFunc: r.keyFunc, newFunc: r.newFunc, stats: &recentStats{calculate: store.Stats, clock: b.clock},
	}
	resource := r.config.GroupResource
	b.open.mu.Lock()
	defer b.open.mu.Unlock()
	b.open.byResource[resource] = append(b.open.byResource[resource], opened)
	return func() { b.open.forget(resource, opened) }
}

// openResources are the resources whose storage is open.
type openResources struct {
	mu         sync.Mutex
	byResource map[schema.GroupResource][]*openResource
}

func (o *openResources) forget(resource schema.GroupResource, r *openResource) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byResource[resource] = slices.DeleteFunc(o.byResource[resource], func(other *openResource) bool { return other == r })
}

// find returns the version that was opened last.
func (o *openResources) find(resource schema.GroupResource) (*openResource, error) {
	open, err := o.all(resource)
	if err != nil {
		return nil, err
	}
	return open[len(open)-1], nil
}

// all returns the open versions of a resource, at least one.
func (o *openResources) all(resource schema.GroupResource) ([]*openResource, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := o.byResource[resource]
	if len(open) == 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s are not stored here, or no longer served", resource))
	}
	return slices.Clone(open), nil
}

// key returns the key of an object in etcd.
func (r *openResource) key(namespace, name string) (string, error) {
	object := r.newFunc()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	accessor.SetNamespace(namespace)
	accessor.SetName(name)
	key, err := r.keyFunc(object)
	if err != nil {
		return "", err
	}
	return path.Join(r.root, key), nil
}

// Newest returns the revision of the latest write.
func (h *History) Newest(ctx context.Context) (int64, error) {
	newest, err := h.backend.Revision(ctx)
	return int64(newest), err
}

// Oldest returns the oldest revision that can be read.
func (h *History) Oldest(ctx context.Context) (int64, error) {
	newest, err := h.Newest(ctx)
	if err != nil {
		return 0, err
	}
	var failed error
	known := max(h.backend.compactor.oldest(), 1)
	readable := func(revision int64) bool {
		_, err := h.backend.client.Client.Get(ctx, markKey, clientv3.WithRev(revision), clientv3.WithCountOnly())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			failed = err
		}
		return err == nil
	}
	if readable(known) {
		return known, failed
	}
	// Another server has compacted: search for the oldest readable revision.
	n := sort.Search(int(newest-known), func(i int) bool { return readable(known + int64(i)) })
	oldest := known + int64(n)
	if failed == nil {
		h.backend.compactor.forget(oldest)
	}
	return oldest, failed
}

// Time returns when a revision was written, to a minute: then or in the minute after.
func (h *History) Time(revision int64) time.Time { return h.backend.compactor.marks.timeOf(revision) }

// RevisionAt returns the last revision that was certainly written by then; 0 if none is known.
func (h *History) RevisionAt(then time.Time) int64 {
	return h.backend.compactor.marks.latest(then).revision
}

// At returns an object as it was at a revision.
func (h *History) At(ctx context.Context, resource schema.GroupResource, namespace, name string, revision int64) (*unstructured.Unstructured, error) {
	stored, err := h.backend.open.find(resource)
	if err != nil {
		return nil, err
	}
	key, err := stored.key(namespace, name)
	if err != nil {
		return nil, err
	}
	kv, err := h.get(ctx, key, revision)
	if err != nil {
		return nil, err
	}
	if kv == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return h.read(ctx, resource, stored, kv)
}

// get reads a key as it was at a revision; nil if it did not exist.
func (h *History) get(ctx context.Context, key string, revision int64) (*mvccpb.KeyValue, error) {
	answer, err := h.backend.client.Client.Get(ctx, key, clientv3.WithRev(revision))
	if err != nil {
		return nil, h.expired(ctx, revision, err)
	}
	if len(answer.Kvs) == 0 {
		return nil, nil
	}
	return answer.Kvs[0], nil
}

// List yields the objects of a resource as they were at a revision, those of one namespace if
// it is given. An error is yielded last.
func (h *History) List(ctx context.Context, resource schema.GroupResource, namespace string, revision int64) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		stored, err := h.backend.open.find(resource)
		if err != nil {
			yield(nil, err)
			return
		}
		start := stored.prefixOf(namespace)
		for kv, err := range pages(ctx, h.backend.client.Client, start, clientv3.GetPrefixRangeEnd(start), clientv3.WithRev(revision)) {
			if err != nil {
				yield(nil, h.expired(ctx, revision, err))
				return
			}
			object, err := h.read(ctx, resource, stored, kv)
			if !yield(object, err) || err != nil {
				return
			}
		}
	}
}

// First implements deletion.History. It reads only the keys of objects that are not wanted or
// have not changed.
func (h *History) First(ctx context.Context, resource schema.GroupResource, namespace string, wanted func(namespace, name string) bool) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		stored, err := h.backend.open.find(resource)
		if err != nil {
			yield(nil, err)
			return
		}
		oldest, err := h.Oldest(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		keys, err := h.backend.client.Client.Get(ctx, stored.prefixOf(namespace), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			yield(nil, fmt.Errorf("etcd does not answer: %w", err))
			return
		}
		for _, key := range keys.Kvs {
			first := max(key.CreateRevision, oldest)
			if first >= key.ModRevision || !wanted(stored.place(string(key.Key))) {
				continue
			}
			kv, err := h.get(ctx, string(key.Key), first)
			if apierrors.IsResourceExpired(err) || err == nil && kv == nil {
				continue // compacted meanwhile
			}
			if err != nil {
				yield(nil, err)
				return
			}
			object, err := h.read(ctx, resource, stored, kv)
			if !yield(object, err) || err != nil {
				return
			}
		}
	}
}

// prefixOf returns the key prefix of the resource, or of a namespace if it is given.
func (r *openResource) prefixOf(namespace string) string {
	if namespace == "" {
		return r.prefix
	}
	return r.prefix + namespace + "/"
}

// place returns the namespace and name of the object with a key.
func (r *openResource) place(key string) (namespace, name string) {
	namespace, name, namespaced := strings.Cut(strings.TrimPrefix(key, r.prefix), "/")
	if !namespaced {
		return "", namespace
	}
	return namespace, name
}

// read decrypts and decodes a stored object, and converts it to the version that the resource
// is stored in now.
func (h *History) read(ctx context.Context, resource schema.GroupResource, r *openResource, kv *mvccpb.KeyValue) (*unstructured.Unstructured, error) {
	plain, _, err := h.backend.transformer(resource).TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", kv.Key, err)
	}
	object, stored, err := r.codec.Decode(plain, nil, r.newFunc())
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", kv.Key, err)
	}
	found, err := published(r.codec, object, *stored)
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", kv.Key, err)
	}
	return found, storage.APIObjectVersioner{}.UpdateObject(found, uint64(kv.ModRevision))
}

// published converts a decoded object to the version that its resource is stored in, because
// internal versions do not leave the API server. For most kinds the two are the same.
func published(codec runtime.Codec, object runtime.Object, stored schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if found, ok := object.(*unstructured.Unstructured); ok {
		return found, nil
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil && slices.Contains(kinds, stored) {
		return toUnstructured(object, stored)
	}
	encoded, err := runtime.Encode(codec, object)
	if err != nil {
		return nil, err
	}
	if isProtobuf, _, _ := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).RecognizesData(encoded); !isProtobuf {
		found := &unstructured.Unstructured{}
		return found, found.UnmarshalJSON(encoded)
	}
	typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(encoded, nil, nil)
	if err != nil {
		return nil, err
	}
	return toUnstructured(typed, *kind)
}

func toUnstructured(typed runtime.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	found := &unstructured.Unstructured{Object: content}
	found.SetGroupVersionKind(kind)
	return found, nil
}

// expired translates etcd's refusal of an old revision to the API's, and says which revisions
// can still be read.
func (h *History) expired(ctx context.Context, revision int64, err error) error {
	if !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	oldest, err := h.Oldest(ctx)
	if err != nil {
		return err
	}
	return h.notRetained(revision, oldest)
}

func (h *History) notRetained(revision, oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("revision %d is no longer retained; the oldest retained revision is %d of %s",
		revision, oldest, h.Time(oldest).UTC().Format(time.RFC3339)))
}
