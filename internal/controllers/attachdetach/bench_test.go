// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// BenchmarkReconcile takes a decision, which is to do nothing, about one of many attached volumes.
func BenchmarkReconcile(b *testing.B) {
	for _, volumes := range []int{100, 10_000} {
		b.Run(fmt.Sprint(volumes), func(b *testing.B) {
			r := &reconciler{client: cacheOf(b, attachedVolumes(volumes)), clock: testingclock.NewFakeClock(now), memory: map[volume]map[string]*seen{}}
			request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "csi.example.com", Name: "handle-7"}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Reconcile(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNodeChange maps a change of a node to the volumes that are attached to it.
func BenchmarkNodeChange(b *testing.B) {
	objects := attachedVolumes(10_000)
	r := &reconciler{client: cacheOf(b, objects)}
	node := objects[0].(*corev1.Node)
	b.ReportAllocs()
	for b.Loop() {
		if got := r.requestsOfNode(b.Context(), node); len(got) == 0 {
			b.Fatal("no volumes")
		}
	}
}

// attachedVolumes returns 100 nodes, and volumes that are attached to them and in use.
func attachedVolumes(count int) []client.Object {
	var objects []client.Object
	var nodes []*corev1.Node
	for i := range 100 {
		nodes = append(nodes, newNode(fmt.Sprint("node-", i)))
		objects = append(objects, nodes[i])
	}
	for i := range count {
		name, node := fmt.Sprint("v-", i), nodes[i%len(nodes)]
		v := volume{"csi.example.com", fmt.Sprint("handle-", i)}
		node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: v.uniqueName()})
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, v.uniqueName())
		objects = append(objects, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: v.driver, VolumeHandle: v.handle}},
		}}, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: v.attachmentName(node.Name)}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: v.driver, NodeName: node.Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(name)},
		}, Status: storagev1.VolumeAttachmentStatus{Attached: true}})
	}
	return objects
}

// cacheOf returns a reader of an informer cache that holds the objects.
func cacheOf(b *testing.B, objects []client.Object) client.Client {
	informers := func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, object := range objects {
			if reflect.TypeOf(object) == reflect.TypeOf(kind) {
				list.Items = append(list.Items, runtime.RawExtension{Object: object})
			}
		}
		return toolscache.NewSharedIndexInformer(fixed{list}, kind, resync, indexers)
	}
	c, err := cache.New(&rest.Config{}, cache.Options{
		HTTPClient: http.DefaultClient, Scheme: scheme.Scheme, Mapper: testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme), NewInformer: informers,
	})
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	must(err)
	must(pods.IndexVolumeClaims(b.Context(), c))
	must(addIndexes(b.Context(), c))
	go func() { _ = c.Start(b.Context()) }()
	for _, kind := range []client.Object{&corev1.PersistentVolume{}, &storagev1.VolumeAttachment{}, &corev1.Node{}, &storagev1.CSIDriver{}} {
		_, err := c.GetInformer(b.Context(), kind)
		must(err)
	}
	c.WaitForCacheSync(b.Context())
	return reading{Reader: c}
}

// reading is a client that only reads.
type reading struct {
	client.Reader
	client.Client
}

func (r reading) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return r.Reader.Get(ctx, key, object, opts...)
}

func (r reading) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.Reader.List(ctx, list, opts...)
}

// fixed is a source of objects that never change.
type fixed struct{ list runtime.Object }

func (f fixed) List(metav1.ListOptions) (runtime.Object, error) { return f.list, nil }

func (fixed) IsWatchListSemanticsUnSupported() bool { return true }

func (f fixed) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }
