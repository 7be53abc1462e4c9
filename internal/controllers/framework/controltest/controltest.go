// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controltest provides an API and a cache for tests of controllers. The API is in
// memory and implements what controllers rely on: UIDs, generations, preconditions, the
// status subresource. The cache has the state of the last Sync, so that a test decides how
// stale the view of a Reconcile is.
package controltest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Start is where the clock of every World starts.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// World is one API with one cache.
type World struct {
	// API reads and writes directly, as other clients would.
	API client.WithWatch
	// Clock is the only source of time.
	Clock *testingclock.FakeClock
	// Served holds the discovery of the API, initially all kinds of the scheme.
	Served *clienttesting.Fake
	// Refuse, if set, is called before each write of the controller under test, one at a
	// time. The API answers with the error that it returns.
	Refuse func(verb string, obj client.Object) error

	t        testing.TB
	refusing sync.Mutex
	indexes  []index

	mu     sync.Mutex
	uids   int
	last   int64 // the newest resource version
	seen   int64 // the resource version of the cache
	cache  client.Client
	events []string
}

// lists returns a list of each kind that the cache holds.
func lists() []client.ObjectList {
	return []client.ObjectList{
		&corev1.PodList{}, &corev1.NodeList{}, &corev1.NamespaceList{}, &corev1.ServiceAccountList{}, &corev1.ConfigMapList{},
		&corev1.ServiceList{}, &corev1.ReplicationControllerList{},
		&corev1.EndpointsList{}, &corev1.ResourceQuotaList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{},
		&appsv1.ReplicaSetList{}, &appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &appsv1.StatefulSetList{}, &appsv1.ControllerRevisionList{},
		&batchv1.JobList{}, &batchv1.CronJobList{}, &policyv1.PodDisruptionBudgetList{}, &discoveryv1.EndpointSliceList{},
		&storagev1.VolumeAttributesClassList{}, &storagev1.StorageClassList{}, &storagev1.VolumeAttachmentList{}, &storagev1.CSIDriverList{},
		&resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{}, &schedulingv1beta1.PodGroupList{},
		&resourcev1.ResourceSliceList{}, &resourcev1.DeviceTaintRuleList{},
	}
}

// New returns a World with the given objects in its API and its cache.
func New(t testing.TB, objs ...client.Object) *World {
	w := &World{t: t, Clock: testingclock.NewFakeClock(Start), Served: &clienttesting.Fake{}}
	store := builder().WithGlobalResourceVersionCounter().WithStatusSubresource(
		&corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{}, &corev1.ResourceQuota{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{},
		&appsv1.ReplicaSet{}, &appsv1.Deployment{}, &appsv1.DaemonSet{}, &appsv1.StatefulSet{}, &batchv1.Job{}, &batchv1.CronJob{},
		&corev1.ReplicationController{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}, &resourcev1.ResourceClaim{}, &schedulingv1beta1.PodGroup{}, &resourcev1.DeviceTaintRule{}).Build()
	w.API = interceptor.NewClient(store, interceptor.Funcs{
		Create:            w.create,
		Update:            w.update,
		Patch:             w.patch,
		Delete:            w.delete,
		SubResourceUpdate: w.updateStatus,
	})
	w.Served.Resources = resources(w.API.Scheme(), w.API.RESTMapper())
	for _, obj := range objs {
		w.Must(w.API.Create(context.Background(), obj))
	}
	w.Sync()
	return w
}

var crds = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}

func builder() *fake.ClientBuilder {
	// The fake client walks its scheme at each write, so the scheme is small. No test
	// reads managed fields, so the cheap converter is enough.
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(batchv1.AddToScheme(scheme))
	utilruntime.Must(discoveryv1.AddToScheme(scheme))
	utilruntime.Must(policyv1.AddToScheme(scheme))
	utilruntime.Must(storagev1.AddToScheme(scheme))
	utilruntime.Must(resourcev1.AddToScheme(scheme))
	scheme.AddKnownTypes(schedulingv1beta1.SchemeGroupVersion, &schedulingv1beta1.PodGroup{}, &schedulingv1beta1.PodGroupList{})
	// Controllers watch the metadata of CRDs.
	scheme.AddKnownTypeWithName(crds.WithKind("CustomResourceDefinition"), &metav1.PartialObjectMetadata{})
	scheme.AddKnownTypeWithName(crds.WithKind("CustomResourceDefinitionList"), &metav1.PartialObjectMetadataList{})
	b := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).WithTypeConverters(managedfields.NewDeducedTypeConverter())
	for _, obj := range []client.Object{&corev1.Pod{}, &appsv1.ReplicaSet{}, &appsv1.ControllerRevision{}, &corev1.ReplicationController{}, &batchv1.Job{}, &discoveryv1.EndpointSlice{}, &resourcev1.ResourceClaim{}} {
		b.WithIndex(obj, owned.ControllerIndex, owned.ControllerOf)
	}
	return b.WithIndex(&corev1.Pod{}, pods.VolumeClaimIndex, pods.VolumeClaims)
}

// resources returns all kinds of a scheme, as discovery lists them.
func resources(scheme *runtime.Scheme, mapper meta.RESTMapper) []*metav1.APIResourceList {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for kind := range scheme.AllKnownTypes() {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			continue // options, and lists
		}
		version := kind.GroupVersion()
		if lists[version] == nil {
			lists[version] = &metav1.APIResourceList{GroupVersion: version.String()}
		}
		lists[version].APIResources = append(lists[version].APIResources, metav1.APIResource{
			Name: mapping.Resource.Resource, Kind: kind.Kind, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
			Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		})
	}
	return slices.Collect(maps.Values(lists))
}

// Must fails the test if err is not nil.
func (w *World) Must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Env returns the environment of the controller under test. Its Manager is nil: tests call
// Reconcile themselves.
func (w *World) Env() control.Env {
	return control.Env{
		Client:    controllerClient{Client: w.API, world: w},
		Live:      w.API,
		Discovery: &fakediscovery.FakeDiscovery{Fake: w.Served},
		Events:    recorder{w},
		Clock:     w.Clock,
	}
}

// Sync brings the cache up to date with the API: all of it, or only the kinds of the given lists,
// because each kind has a watch of its own.
func (w *World) Sync(only ...client.ObjectList) {
	w.t.Helper()
	w.mu.Lock()
	seen, cached := w.last, w.cache
	w.mu.Unlock()
	b := builder()
	for _, index := range w.indexes {
		b.WithIndex(index.kind, index.field, index.values)
	}
	for _, list := range lists() {
		from := client.Reader(w.API)
		if len(only) > 0 && !slices.ContainsFunc(only, func(l client.ObjectList) bool { return reflect.TypeOf(l) == reflect.TypeOf(list) }) {
			from = cached
		}
		w.Must(from.List(context.Background(), list))
		b.WithLists(list)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cache = b.Build()
	if len(only) == 0 {
		w.seen = seen
	}
}

// Index adds an index to the cache, as Add does under a manager.
func (w *World) Index(kind client.Object, field string, values client.IndexerFunc) {
	w.t.Helper()
	w.indexes = append(w.indexes, index{kind, field, values})
	w.Sync()
}

type index struct {
	kind   client.Object
	field  string
	values client.IndexerFunc
}

// Seen returns the resource version that the whole cache has reached.
func (w *World) Seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strconv.FormatInt(w.seen, 10)
}

// Events returns the events recorded since the last call, as "type reason message".
func (w *World) Events() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

func (w *World) create(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	w.mu.Lock()
	w.uids++
	obj.SetUID(types.UID(fmt.Sprintf("uid-%04d", w.uids)))
	w.mu.Unlock()
	if obj.GetCreationTimestamp().Time.IsZero() {
		obj.SetCreationTimestamp(metav1.NewTime(w.Clock.Now()))
	}
	obj.SetGeneration(1)
	return w.wrote(obj, c.Create(ctx, obj, opts...))
}

func (w *World) update(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
	before := obj.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), before); err != nil {
		return err
	}
	if obj.GetResourceVersion() == "" { // an unconditional update
		obj.SetUID(before.GetUID())
		obj.SetResourceVersion(before.GetResourceVersion())
	}
	if !apiequality.Semantic.DeepEqual(spec(before), spec(obj)) {
		obj.SetGeneration(before.GetGeneration() + 1)
	}
	return w.wrote(obj, c.Update(ctx, obj, opts...))
}

func (w *World) patch(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return w.wrote(obj, c.Patch(ctx, obj, patch, opts...))
}

func (w *World) delete(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if p := options.Preconditions; p != nil {
		current := obj.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), current); err != nil {
			return err
		}
		if p.UID != nil && current.GetUID() != *p.UID || p.ResourceVersion != nil && current.GetResourceVersion() != *p.ResourceVersion {
			return apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), fmt.Errorf("uid is %s, version %s", current.GetUID(), current.GetResourceVersion()))
		}
	}
	return c.Delete(ctx, obj, opts...)
}

// updateStatus also updates annotations and finalizers, as the API server does for most kinds.
func (w *World) updateStatus(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	annotations, finalizers := obj.GetAnnotations(), obj.GetFinalizers()
	if err := c.SubResource(sub).Update(ctx, obj, opts...); err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(annotations, obj.GetAnnotations()) || !apiequality.Semantic.DeepEqual(finalizers, obj.GetFinalizers()) {
		obj.SetAnnotations(annotations)
		obj.SetFinalizers(finalizers)
		w.Must(c.Update(ctx, obj))
	}
	return w.wrote(obj, nil)
}

// wrote records the resource version of a written object, unless the write failed.
func (w *World) wrote(obj client.Object, err error) error {
	if err != nil {
		return err
	}
	rv, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = max(w.last, rv)
	return err
}

func spec(obj client.Object) any {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil
	}
	return u["spec"]
}

// controllerClient reads from the cache and writes to the API, unless Refuse returns an
// error.
type controllerClient struct {
	client.Client
	world *World
}

func (c controllerClient) reader() client.Reader {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	return c.world.cache
}

func (c controllerClient) refuse(verb string, obj client.Object) error {
	if c.world.Refuse == nil {
		return nil
	}
	c.world.refusing.Lock()
	defer c.world.refusing.Unlock()
	return c.world.Refuse(verb, obj)
}

func (c controllerClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader().Get(ctx, key, obj, opts...)
}

func (c controllerClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader().List(ctx, list, opts...)
}

func (c controllerClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := c.refuse("create", obj); err != nil {
		return err
	}
	return c.Client.Create(ctx, obj, opts...)
}

func (c controllerClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := c.refuse("update", obj); err != nil {
		return err
	}
	return c.Client.Update(ctx, obj, opts...)
}

func (c controllerClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := c.refuse("patch", obj); err != nil {
		return err
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}

func (c controllerClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if err := c.refuse("delete", obj); err != nil {
		return err
	}
	return c.Client.Delete(ctx, obj, opts...)
}

func (c controllerClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c controllerClient) SubResource(name string) client.SubResourceClient {
	return statusClient{SubResourceClient: c.Client.SubResource(name), parent: c}
}

type statusClient struct {
	client.SubResourceClient
	parent controllerClient
}

func (s statusClient) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := s.parent.refuse("update status", obj); err != nil {
		return err
	}
	return s.SubResourceClient.Update(ctx, obj, opts...)
}

func (s statusClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := s.parent.refuse("patch status", obj); err != nil {
		return err
	}
	return s.SubResourceClient.Patch(ctx, obj, patch, opts...)
}

// recorder records events as lines of text.
type recorder struct{ world *World }

var _ record.EventRecorder = recorder{}

func (r recorder) Event(_ runtime.Object, eventType, reason, message string) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	r.world.events = append(r.world.events, eventType+" "+reason+" "+message)
}

func (r recorder) Eventf(obj runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(obj, eventType, reason, fmt.Sprintf(format, args...))
}

func (r recorder) AnnotatedEventf(obj runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	r.Eventf(obj, eventType, reason, format, args...)
}
