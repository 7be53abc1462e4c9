// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	start   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	configs = metav1.GroupResource{Resource: "configmaps"}
)

func newMigration(name string, age time.Duration, resource metav1.GroupResource, holds ...migrationv1.MigrationConditionType) *migration {
	m := &migration{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(-age))},
		Spec:       migrationv1.StorageVersionMigrationSpec{Resource: resource},
	}
	for _, t := range holds {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: string(t), Status: metav1.ConditionTrue, Reason: "R"})
	}
	return m
}

func TestNext(t *testing.T) {
	const running, succeeded, failed = migrationv1.MigrationRunning, migrationv1.MigrationSucceeded, migrationv1.MigrationFailed
	other := metav1.GroupResource{Group: "apps", Resource: "deployments"}
	for name, tt := range map[string]struct {
		all  []*migration
		want string
		step step
	}{
		"no migrations":                                 {nil, "", noStep},
		"migration of another resource":                 {[]*migration{newMigration("a", 0, other)}, "", noStep},
		"all have ended":                                {[]*migration{newMigration("a", 0, configs, succeeded), newMigration("b", 0, configs, failed)}, "", noStep},
		"the oldest starts":                             {[]*migration{newMigration("a", time.Hour, configs), newMigration("b", 2*time.Hour, configs), newMigration("c", 0, configs)}, "b", begin},
		"equal age, ordered by name":                    {[]*migration{newMigration("b", 0, configs), newMigration("a", 0, configs)}, "a", begin},
		"others wait for the running one":               {[]*migration{newMigration("a", time.Hour, configs), newMigration("b", 0, configs, running)}, "b", run},
		"others wait until the running one is finished": {[]*migration{newMigration("a", time.Hour, configs), newMigration("b", 0, configs, running, failed)}, "b", finish},
		"the next one starts after the end":             {[]*migration{newMigration("a", time.Hour, configs, succeeded), newMigration("b", 0, configs)}, "b", begin},
	} {
		var all []migration
		for _, m := range tt.all {
			all = append(all, *m)
		}
		got, step := next(all, configs)
		if step != tt.step || (got == nil) != (tt.want == "") || got != nil && got.Name != tt.want {
			t.Errorf("%s: %v, %d", name, got, step)
		}
	}
}

func TestMessages(t *testing.T) {
	for want, p := range map[string]progress{
		"The migration is running":                                                          {},
		"The migration is running, 2/3 objects not yet migrated":                            {left: 2, total: 3},
		"The migration is running, 3 objects verified migrated":                             {total: 3},
		"The migration is running, 1/3 objects not yet migrated; transient error: too busy": {left: 1, total: 3, err: errors.New("too busy")},
	} {
		if got := p.message(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// bench is an API with ConfigMaps a (resourceVersion 5), b (100) and c (150), whose newest
// resourceVersion is 100.
type bench struct {
	*testing.T
	client.Client
	clock   *testingclock.FakePassiveClock
	r       *reconciler
	patched []string
	refuse  error
}

func newBench(t *testing.T, migrations ...*migration) *bench {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, migrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := func(name, version string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
	}
	b := &bench{T: t, clock: testingclock.NewFakePassiveClock(start)}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&migration{}).
		WithObjects(config("a", "5"), config("b", "100"), config("c", "150")).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				list.SetResourceVersion("100")
				return err
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if obj.GetObjectKind().GroupVersionKind().Kind == "CustomResourceDefinition" {
					return apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), key.Name)
				}
				return c.Get(ctx, key, obj, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				data, err := patch.Data(obj)
				if err != nil {
					return err
				}
				b.patched = append(b.patched, obj.GetName()+" "+string(data))
				if b.refuse != nil {
					return b.refuse
				}
				return nil
			},
		})
	for _, m := range migrations {
		builder.WithObjects(m)
	}
	b.Client = builder.Build()
	b.r = &reconciler{client: b.Client, live: b.Client, clock: b.clock, discovery: &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{
		Resources: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "configmaps", Kind: "ConfigMap", Verbs: metav1.Verbs{"list", "update", "patch", "get"}}, {Name: "bindings", Kind: "Binding", Verbs: metav1.Verbs{"create"}},
		}}},
	}}}
	return b
}

func (b *bench) reconcile(resource metav1.GroupResource) error {
	_, err := b.r.Reconcile(context.Background(), requestFor(resource))
	return err
}

// settle takes steps until nothing changes.
func (b *bench) settle(resource metav1.GroupResource) {
	b.Helper()
	for range 6 {
		if err := b.reconcile(resource); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) conditions(name string) map[string]string {
	b.Helper()
	m := &migration{}
	if err := b.Get(context.Background(), client.ObjectKey{Name: name}, m); err != nil {
		b.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range m.Status.Conditions {
		got[c.Type] = string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	return got
}

func TestMigrationRewritesOldObjects(t *testing.T) {
	b := newBench(t, newMigration("m", 0, configs), newMigration("later", -time.Hour, configs))
	for range 2 { // it starts, and records the resourceVersion
		if err := b.reconcile(configs); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]string{"Running": "True MigrationRunning: The migration is running"}, b.conditions("m")); diff != "" || len(b.patched) != 0 {
		t.Errorf("wrote %v, conditions (-want +got):\n%s", b.patched, diff)
	}
	if len(b.conditions("later")) != 0 {
		t.Errorf("two migrations run: %v", b.conditions("later"))
	}

	b.refuse = apierrors.NewTooManyRequests("busy", 1)
	if err := b.reconcile(configs); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a busy server: %v", err)
	}
	if got := b.conditions("m")["Running"]; got != "True MigrationRunning: The migration is running, 2/3 objects not yet migrated; transient error: busy" {
		t.Errorf("Running is %q", got)
	}
	b.refuse, b.patched = nil, nil
	if err := b.reconcile(configs); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"5"}}`,
		`b {"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"100"}}`,
	}
	if diff := cmp.Diff(want, b.patched); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
	if got := b.conditions("m")["Running"]; got != "True MigrationRunning: The migration is running, 3 objects verified migrated" {
		t.Errorf("Running is %q", got)
	}

	b.settle(configs)
	done := map[string]string{
		"Running": "False MigrationCompleted: Migration completed", "Succeeded": "True StorageVersionMigrationSucceeded: Migration completed",
	}
	for _, name := range []string{"m", "later"} {
		if diff := cmp.Diff(done, b.conditions(name)); diff != "" {
			t.Errorf("%s: conditions (-want +got):\n%s", name, diff)
		}
	}
}

func TestConcurrentlyWrittenObjectsNeedNoRewrite(t *testing.T) {
	for _, err := range []error{apierrors.NewConflict(corev1.Resource("configmaps"), "a", errors.New("newer")), apierrors.NewNotFound(corev1.Resource("configmaps"), "a")} {
		b := newBench(t, newMigration("m", 0, configs))
		b.refuse = err
		b.settle(configs)
		if _, ok := b.conditions("m")["Succeeded"]; !ok {
			t.Errorf("%v: %v", err, b.conditions("m"))
		}
	}
}

func TestFailures(t *testing.T) {
	t.Run("an object is refused", func(t *testing.T) {
		b := newBench(t, newMigration("m", 0, configs))
		b.refuse = apierrors.NewForbidden(corev1.Resource("configmaps"), "a", errors.New("no"))
		b.settle(configs)
		got := b.conditions("m")
		if !strings.HasPrefix(got["Failed"], "True StorageVersionMigrationFailed: 2/3 not yet migrated. migration encountered unhandled error: ") ||
			!strings.HasPrefix(got["Running"], "False ") || len(b.patched) != 1 {
			t.Errorf("%v after %v", got, b.patched)
		}
	})
	t.Run("a resource cannot be migrated", func(t *testing.T) {
		bindings := metav1.GroupResource{Resource: "bindings"}
		b := newBench(t, newMigration("m", 0, bindings))
		b.settle(bindings)
		if got := b.conditions("m")["Failed"]; got != `True StorageVersionMigrationFailed: resource "/v1, Resource=bindings" does not support discovery operations: [update patch list]` {
			t.Errorf("Failed is %q", got)
		}
	})
	t.Run("a resource is not served", func(t *testing.T) {
		nowhere := metav1.GroupResource{Group: "example.com", Resource: "things"}
		b := newBench(t, newMigration("m", 0, nowhere))
		if err := b.reconcile(nowhere); err != nil { // it starts
			t.Fatal(err)
		}
		if err := b.reconcile(nowhere); err == nil {
			t.Error("no error, so the request is not retried")
		}
		b.clock.SetTime(start.Add(servedWithin))
		b.settle(nowhere)
		if got := b.conditions("m")["Failed"]; got != "True StorageVersionMigrationFailed: resource does not exist in discovery" {
			t.Errorf("Failed is %q", got)
		}
	})
}

func TestDefinitionStatus(t *testing.T) {
	crd := func(observed int64) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things.example.com", Generation: 3, ResourceVersion: "7"},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, {Name: "v2", Storage: true}}},
			Status: apiextensionsv1.CustomResourceDefinitionStatus{
				StoredVersions: []string{"v1", "v2"},
				Conditions:     []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.StorageMigrating, ObservedGeneration: observed}},
			},
		}
	}
	both, storage := []any{"v1", "v2"}, []any{"v2"}
	for name, tt := range map[string]struct {
		tell                    statusChange
		observed                int64
		status, reason, message string
		stored                  []any
	}{
		"start":     {startCondition("m"), 3, "True", "MigrationRunning", "Migration m is running", both},
		"succeeded": {endCondition(true), 3, "False", "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated", storage},
		"succeeded, but changed during the migration": {endCondition(true), 2, "False", "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch", both},
		"failed": {endCondition(false), 3, "False", "MigrationFailed", "The migration has failed", both},
	} {
		got, err := statusOf(crd(tt.observed), tt.tell, start)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "things.example.com", "resourceVersion": "7"},
			"status": map[string]any{"storedVersions": tt.stored, "conditions": []any{map[string]any{
				"type": "StorageMigrating", "status": tt.status, "reason": tt.reason, "message": tt.message,
				"lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": int64(3),
			}}},
		}
		if diff := cmp.Diff(want, got.Object); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
