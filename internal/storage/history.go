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
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kindred-project/kindred/internal/deletion"
)

// History reads what the store still knows of the past, for those who may read everything.
//
// It reads states at a revision, and never what happened between two: etcd answers a
// watch from an old revision by reading all that was written since, whoever wrote it, and
// every write waits meanwhile. What was asked for and is not retained is refused as the API
// refuses an old resourceVersion, with the reason Expired.
type History struct{ backend *Backend }

var _ deletion.History = &History{}

// History reads the past of the store.
func (b *Backend) History() *History { return &History{b} }

// kept is how a resource is stored: what it takes to find and to read its objects. Whoever
// opens the resource's storage says so, as it is opened.
type kept struct {
	codec   runtime.Codec
	root    string // of all keys
	prefix  string // of the resource's
	keyFunc func(runtime.Object) (string, error)
	newFunc func() runtime.Object
}

// keep notes how a resource is stored, until the returned function is called. The versions of
// a custom resource are opened one by one; each can read what all have stored.
func (b *Backend) keep(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error), newFunc func() runtime.Object) (forget func()) {
	how := &kept{codec: config.Codec, root: path.Join("/", config.Prefix), prefix: path.Join("/", config.Prefix, prefix) + "/", keyFunc: keyFunc, newFunc: newFunc}
	b.kept.mu.Lock()
	defer b.kept.mu.Unlock()
	resource := config.GroupResource
	b.kept.resources[resource] = append(b.kept.resources[resource], how)
	return func() { b.kept.forget(resource, how) }
}

// keptResources are the resources that are open.
type keptResources struct {
	mu        sync.Mutex
	resources map[schema.GroupResource][]*kept
}

func (k *keptResources) forget(resource schema.GroupResource, how *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var rest []*kept
	for _, other := range k.resources[resource] {
		if other != how {
			rest = append(rest, other)
		}
	}
	k.resources[resource] = rest
}

func (k *keptResources) find(resource schema.GroupResource) (*kept, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	open := k.resources[resource]
	if len(open) == 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s are not stored here, or not served any more", resource))
	}
	return open[len(open)-1], nil
}

// key is the key of an object in etcd.
func (k *kept) key(namespace, name string) (string, error) {
	object := k.newFunc()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	accessor.SetNamespace(namespace)
	accessor.SetName(name)
	key, err := k.keyFunc(object)
	if err != nil {
		return "", err
	}
	return path.Join(k.root, key), nil
}

// Newest is the revision of the latest write.
func (h *History) Newest(ctx context.Context) (int64, error) {
	newest, err := h.backend.Revision(ctx)
	return int64(newest), err
}

// Oldest is the oldest revision that can be read.
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
	// Another process compacted.
	n := sort.Search(int(newest-known), func(i int) bool { return readable(known + int64(i)) })
	oldest := known + int64(n)
	if failed == nil {
		h.backend.compactor.forget(oldest)
	}
	return oldest, failed
}

// Time is when a revision was, to a minute: it was written then or in the minute after.
func (h *History) Time(revision int64) time.Time { return h.backend.compactor.marks.timeOf(revision) }

// RevisionAt is the last revision that was certainly written by then; 0 if none is known.
func (h *History) RevisionAt(then time.Time) int64 {
	return h.backend.compactor.marks.latest(then).revision
}

// At is an object as it was at a revision.
func (h *History) At(ctx context.Context, resource schema.GroupResource, namespace, name string, revision int64) (*unstructured.Unstructured, error) {
	how, err := h.backend.kept.find(resource)
	if err != nil {
		return nil, err
	}
	key, err := how.key(namespace, name)
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
	return h.read(ctx, resource, how, kv)
}

// get reads a key as it was at a revision; nil if it was not there.
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

// List goes through the objects of a resource as they were at a revision, those of one
// namespace if it is given. It ends with an error, if there is one.
func (h *History) List(ctx context.Context, resource schema.GroupResource, namespace string, revision int64) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		how, err := h.backend.kept.find(resource)
		if err != nil {
			yield(nil, err)
			return
		}
		start := how.prefixOf(namespace)
		for kv, err := range pages(ctx, h.backend.client.Client, start, clientv3.GetPrefixRangeEnd(start), clientv3.WithRev(revision)) {
			if err != nil {
				yield(nil, h.expired(ctx, revision, err))
				return
			}
			object, err := h.read(ctx, resource, how, kv)
			if !yield(object, err) || err != nil {
				return
			}
		}
	}
}

// First implements deletion.History. Of those that are not wanted, or have not changed, only
// the keys are read.
func (h *History) First(ctx context.Context, resource schema.GroupResource, namespace string, wanted func(namespace, name string) bool) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		how, err := h.backend.kept.find(resource)
		if err != nil {
			yield(nil, err)
			return
		}
		oldest, err := h.Oldest(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		keys, err := h.backend.client.Client.Get(ctx, how.prefixOf(namespace), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			yield(nil, fmt.Errorf("etcd does not answer: %w", err))
			return
		}
		for _, key := range keys.Kvs {
			first := max(key.CreateRevision, oldest)
			if first >= key.ModRevision || !wanted(how.place(string(key.Key))) {
				continue
			}
			kv, err := h.get(ctx, string(key.Key), first)
			if apierrors.IsResourceExpired(err) || err == nil && kv == nil {
				continue // Compacted in this moment.
			}
			if err != nil {
				yield(nil, err)
				return
			}
			object, err := h.read(ctx, resource, how, kv)
			if !yield(object, err) || err != nil {
				return
			}
		}
	}
}

// prefixOf is the prefix of the keys of objects, those of one namespace if it is given.
func (k *kept) prefixOf(namespace string) string {
	if namespace == "" {
		return k.prefix
	}
	return k.prefix + namespace + "/"
}

// place is the namespace and the name that a key has.
func (k *kept) place(key string) (namespace, name string) {
	namespace, name, namespaced := strings.Cut(strings.TrimPrefix(key, k.prefix), "/")
	if !namespaced {
		return "", namespace
	}
	return namespace, name
}

// read decrypts and decodes an object as it is stored, and upgrades it to the version that
// is stored now.
func (h *History) read(ctx context.Context, resource schema.GroupResource, how *kept, kv *mvccpb.KeyValue) (*unstructured.Unstructured, error) {
	plain, _, err := h.backend.transformer(resource).TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", kv.Key, err)
	}
	object, stored, err := how.codec.Decode(plain, nil, how.newFunc())
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", kv.Key, err)
	}
	found, err := published(how.codec, object, *stored)
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", kv.Key, err)
	}
	return found, storage.APIObjectVersioner{}.UpdateObject(found, uint64(kv.ModRevision))
}

// published is a decoded object in the version that its resource is stored in: those in between
// are nobody else's business. Of most kinds that is what it was decoded to.
func published(codec runtime.Codec, object runtime.Object, stored schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if found, ok := object.(*unstructured.Unstructured); ok {
		return found, nil
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil && slices.Contains(kinds, stored) {
		return treeOf(object, stored)
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
	return treeOf(typed, *kind)
}

// treeOf is a typed object as a tree of fields.
func treeOf(typed runtime.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	found := &unstructured.Unstructured{Object: content}
	found.SetGroupVersionKind(kind)
	return found, nil
}

// expired makes of etcd's refusal of an old revision the API's own, which says what can
// still be read.
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
	return apierrors.NewResourceExpired(fmt.Sprintf("revision %d is not retained any more; the oldest that is, is %d of %s",
		revision, oldest, h.Time(oldest).UTC().Format(time.RFC3339)))
}
