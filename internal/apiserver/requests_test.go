// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func TestFieldValidation(t *testing.T) {
	namespace := server.namespace(t)
	path := "/api/v1/namespaces/" + namespace + "/configmaps?fieldValidation="
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-"},"data":{"a":"1","a":"2"},"dta":{}}`
	for _, test := range []struct {
		mode, content string
		code          int
		warnings      int
	}{
		{"Strict", body, http.StatusBadRequest, 0},
		{"Warn", body, http.StatusCreated, 2},
		{"Ignore", body, http.StatusCreated, 0},
		{"", body, http.StatusCreated, 2},
		{"Bogus", body, http.StatusUnprocessableEntity, 0},
	} {
		got := server.do(t, server.admin, http.MethodPost, path+test.mode, test.content)
		if got.code != test.code || len(got.header.Values("Warning")) != test.warnings {
			t.Errorf("%q: %d with warnings %q, want %d with %d", test.mode, got.code, got.header.Values("Warning"), test.code, test.warnings)
		}
		if test.mode == "Strict" {
			message := got.status(t).Message
			for _, want := range []string{`unknown field "dta"`, `duplicate field "data.a"`} {
				if !strings.Contains(message, want) {
					t.Errorf("strict: %q does not say %s", message, want)
				}
			}
		}
	}
}

func TestDryRunLeavesNothing(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	maps := client.CoreV1().ConfigMaps(namespace)
	dry := []string{metav1.DryRunAll}
	if _, err := maps.Create(t.Context(), configMap("new", nil), metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry-run create: %v", err)
	}
	kept, err := maps.Create(t.Context(), configMap("kept", map[string]string{"a": "1"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := kept.DeepCopy()
	changed.Data["a"] = "2"
	if got, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: dry}); err != nil || got.Data["a"] != "2" {
		t.Errorf("dry-run update: %v, %v", got, err)
	}
	if _, err := maps.Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"data":{"a":"3"}}`), metav1.PatchOptions{DryRun: dry}); err != nil {
		t.Error(err)
	}
	if err := maps.Delete(t.Context(), "kept", metav1.DeleteOptions{DryRun: dry}); err != nil {
		t.Error(err)
	}
	got, err := maps.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kept, got); diff != "" {
		t.Errorf("dry runs changed the object (-before +after):\n%s", diff)
	}
	// Deleting a namespace and creating a Service write by code of their own.
	if err := client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{DryRun: dry}); err != nil {
		t.Error(err)
	}
	if ns, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil || ns.DeletionTimestamp != nil {
		t.Errorf("after a dry-run delete of the namespace: %v, %v", ns.DeletionTimestamp, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "dry"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	made, err := client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{DryRun: dry})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.NetworkingV1().IPAddresses().Get(t.Context(), made.Spec.ClusterIP, metav1.GetOptions{}); err == nil {
		t.Errorf("a dry run allocated %s", made.Spec.ClusterIP)
	}
}

func TestPatches(t *testing.T) {
	namespace := server.namespace(t)
	client := server.client(t)
	pods := client.CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a": "1"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "one", Image: "i:1"}, {Name: "two", Image: "i:1"}}}}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, patch string
		kind        types.PatchType
		check       func(*corev1.Pod) bool
		refused     metav1.StatusReason
	}{
		{"json", `[{"op":"test","path":"/metadata/labels/a","value":"1"},{"op":"add","path":"/metadata/labels/b","value":"2"}]`, types.JSONPatchType,
			func(p *corev1.Pod) bool { return p.Labels["b"] == "2" }, ""},
		{"json, failed test", `[{"op":"test","path":"/metadata/labels/a","value":"9"}]`, types.JSONPatchType, nil, metav1.StatusReasonInvalid},
		{"json, no patch", `{"a":1}`, types.JSONPatchType, nil, metav1.StatusReasonBadRequest},
		{"merge", `{"metadata":{"labels":{"a":null,"c":"3"}}}`, types.MergePatchType,
			func(p *corev1.Pod) bool { return p.Labels["a"] == "" && p.Labels["c"] == "3" && p.Labels["b"] == "2" }, ""},
		{"strategic", `{"spec":{"containers":[{"name":"two","image":"i:2"}]}}`, types.StrategicMergePatchType,
			func(p *corev1.Pod) bool {
				return len(p.Spec.Containers) == 2 && p.Spec.Containers[0].Image == "i:1" && p.Spec.Containers[1].Image == "i:2"
			}, ""},
		{"an immutable field", `{"spec":{"containers":[{"name":"two","command":["x"]}]}}`, types.StrategicMergePatchType, nil, metav1.StatusReasonInvalid},
		{"stale", `{"metadata":{"resourceVersion":"1","labels":{"d":"4"}}}`, types.MergePatchType, nil, metav1.StatusReasonConflict},
		{"status is a subresource", `{"status":{"phase":"Running"}}`, types.MergePatchType,
			func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending }, ""},
	} {
		got, err := pods.Patch(t.Context(), "web", test.kind, []byte(test.patch), metav1.PatchOptions{})
		switch {
		case test.refused != "":
			if apierrors.ReasonForError(err) != test.refused {
				t.Errorf("%s: %v, want %s", test.name, err, test.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", test.name, err)
		case !test.check(got):
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
	if got, err := pods.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || got.Generation != 2 {
		t.Errorf("generation %d after one change of the spec (%v)", got.Generation, err)
	}
}

func TestServerSideApply(t *testing.T) {
	namespace := server.namespace(t)
	deployments := server.client(t).AppsV1().Deployments(namespace)
	manifest := func(replicas string) []byte {
		return []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{` + replicas + `"selector":{"matchLabels":{"a":"b"}},
			"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	}
	apply := func(manager, replicas string, force bool) error {
		_, err := deployments.Patch(t.Context(), "web", types.ApplyPatchType, manifest(replicas), metav1.PatchOptions{FieldManager: manager, Force: &force})
		return err
	}
	if err := apply("alice", `"replicas":1,`, false); err != nil {
		t.Fatal(err)
	}
	err := apply("bob", `"replicas":2,`, false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "alice": .spec.replicas`) {
		t.Errorf("a second owner: %v", err)
	}
	if err := apply("bob", `"replicas":2,`, true); err != nil {
		t.Error(err)
	}
	if err := apply("alice", "", false); err != nil {
		t.Error(err)
	}
	got, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *got.Spec.Replicas != 2 {
		t.Fatalf("replicas %v (%v), want bob's 2", got.Spec.Replicas, err)
	}
	if err := apply("", "", false); !apierrors.IsInvalid(err) {
		t.Errorf("apply without a manager: %v", err)
	}
}

// TestScaleOwnsReplicas: a field manager that uses the scale subresource owns spec.replicas of the
// object, and the reverse (KEP-555).
func TestScaleOwnsReplicas(t *testing.T) {
	namespace := server.namespace(t)
	deployments := server.client(t).AppsV1().Deployments(namespace)
	manifest := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	owner := metav1.PatchOptions{FieldManager: "owner"}
	if _, err := deployments.Patch(t.Context(), "web", types.ApplyPatchType, []byte(manifest), owner); err != nil {
		t.Fatal(err)
	}
	scale := []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web"},"spec":{"replicas":5}}`)
	_, err := deployments.Patch(t.Context(), "web", types.ApplyPatchType, scale, metav1.PatchOptions{FieldManager: "scaler"}, "scale")
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "owner"`) {
		t.Errorf("applied scale: %v, want a conflict with the owner", err)
	}
	current, err := deployments.GetScale(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if current.Spec.Replicas != 1 || current.Status.Selector != "a=b" {
		t.Errorf("scale: %+v", current)
	}
	current.Spec.Replicas = 3
	if _, err := deployments.UpdateScale(t.Context(), "web", current, metav1.UpdateOptions{FieldManager: "updater"}); err != nil {
		t.Fatal(err)
	}
	got, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *got.Spec.Replicas != 3 || got.Generation != 2 {
		t.Fatalf("replicas %v, generation %d (%v)", *got.Spec.Replicas, got.Generation, err)
	}
	owns := slices.ContainsFunc(got.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == "updater" && e.Subresource == "scale" && e.APIVersion == "apps/v1" && strings.Contains(string(e.FieldsV1.Raw), `"f:replicas"`)
	})
	if !owns {
		t.Errorf("managed fields: %+v", got.ManagedFields)
	}
	current.Spec.Replicas = -1
	current.ResourceVersion = ""
	if _, err := deployments.UpdateScale(t.Context(), "web", current, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.replicas") {
		t.Errorf("negative replicas: %v", err)
	}
	current.ResourceVersion = "1"
	current.Spec.Replicas = 4
	if _, err := deployments.UpdateScale(t.Context(), "web", current, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("stale scale: %v", err)
	}
}

func TestChunkedList(t *testing.T) {
	namespace := server.namespace(t)
	maps := server.client(t).CoreV1().ConfigMaps(namespace)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err := maps.Create(t.Context(), configMap(name, nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var names, versions []string
	options := metav1.ListOptions{Limit: 2}
	for chunks := 1; ; chunks++ {
		list, err := maps.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		versions = append(versions, list.ResourceVersion)
		if chunks == 1 && (list.RemainingItemCount == nil || *list.RemainingItemCount != 3) {
			t.Errorf("remaining: %v", list.RemainingItemCount)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
		// Objects that are created meanwhile are not in the list.
		if _, err := maps.Create(t.Context(), configMap("z-"+names[len(names)-1], nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(names, want) {
		t.Errorf("listed %q, want %q", names, want)
	}
	if len(slices.Compact(versions)) != 1 {
		t.Errorf("chunks of different revisions: %q", versions)
	}
	if _, err := maps.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: "bogus"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a bogus token: %v", err)
	}
}

func TestWatch(t *testing.T) {
	namespace := server.namespace(t)
	maps := server.client(t).CoreV1().ConfigMaps(namespace)
	first, err := maps.Create(t.Context(), configMap("first", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), configMap("second", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	initial, bookmarks := true, true
	w, err := maps.Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: &initial, AllowWatchBookmarks: bookmarks, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func(from watch.Interface) (watch.EventType, *corev1.ConfigMap) {
		select {
		case event := <-from.ResultChan():
			object, _ := event.Object.(*corev1.ConfigMap)
			return event.Type, object
		case <-time.After(5 * time.Second):
			t.Fatal("no event came")
		}
		return "", nil
	}
	var seen []string
	for {
		kind, object := next(w)
		if kind == watch.Bookmark {
			if object.Annotations[metav1.InitialEventsAnnotationKey] != "true" || object.ResourceVersion == "" {
				t.Errorf("the bookmark does not mark the end of the initial events: %+v", object.ObjectMeta)
			}
			break
		}
		seen = append(seen, object.Name)
	}
	if !slices.Equal(seen, []string{"first", "second"}) {
		t.Errorf("streamed %q", seen)
	}
	if err := maps.Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if kind, object := next(w); kind != watch.Deleted || object.Name != "second" {
		t.Errorf("%s %v, want second deleted", kind, object)
	}
	// From a resourceVersion on, only later events are sent.
	since, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer since.Stop()
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if kind, object := next(since); kind != want || object.Name != "second" {
			t.Errorf("%s %v, want %s of second", kind, object, want)
		}
	}
	if _, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "data.a=b"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field selector: %v", err)
	}
}

func TestTable(t *testing.T) {
	namespace := server.namespace(t)
	if _, err := server.client(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("one", map[string]string{"a": "b"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/namespaces/" + namespace + "/configmaps?fieldSelector=metadata.name=one&includeObject="
	for include, check := range map[string]func(runtime.RawExtension) bool{
		"None":     func(o runtime.RawExtension) bool { return len(o.Raw) == 0 },
		"Metadata": func(o runtime.RawExtension) bool { return strings.Contains(string(o.Raw), "PartialObjectMetadata") },
		"Object":   func(o runtime.RawExtension) bool { return strings.Contains(string(o.Raw), `"data"`) },
	} {
		got := server.do(t, server.admin, http.MethodGet, path+include, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
		var table metav1.Table
		if err := json.Unmarshal([]byte(got.body), &table); err != nil || table.Kind != "Table" || len(table.Rows) != 1 {
			t.Errorf("%s: %d %.200q (%v)", include, got.code, got.body, err)
			continue
		}
		var names []string
		for _, column := range table.ColumnDefinitions {
			names = append(names, column.Name)
		}
		if !slices.Equal(names, []string{"Name", "Data", "Age"}) || table.Rows[0].Cells[1] != float64(1) {
			t.Errorf("%s: columns %q, cells %v", include, names, table.Rows[0].Cells)
		}
		if !check(table.Rows[0].Object) {
			t.Errorf("%s: object %.100s", include, table.Rows[0].Object.Raw)
		}
	}
}

func TestProtobuf(t *testing.T) {
	namespace := server.namespace(t)
	object := configMap("proto", map[string]string{"a": "b"})
	object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Raw: raw}
	packed, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const protobuf = "application/vnd.kubernetes.protobuf"
	got := server.do(t, server.admin, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", "k8s\x00"+string(packed),
		"Content-Type", protobuf, "Accept", protobuf)
	if got.code != http.StatusCreated || got.header.Get("Content-Type") != protobuf || !strings.HasPrefix(got.body, "k8s\x00") {
		t.Fatalf("%d %s %.50q", got.code, got.header.Get("Content-Type"), got.body)
	}
	var answered runtime.Unknown
	if err := answered.Unmarshal([]byte(got.body[4:])); err != nil {
		t.Fatal(err)
	}
	var back corev1.ConfigMap
	if err := back.Unmarshal(answered.Raw); err != nil || back.Data["a"] != "b" || back.UID == "" {
		t.Errorf("%+v (%v)", back, err)
	}
}

func TestYAML(t *testing.T) {
	namespace := server.namespace(t)
	body := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata: {a: b}\n"
	got := server.do(t, server.admin, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", body, "Content-Type", "application/yaml", "Accept", "application/yaml")
	if got.code != http.StatusCreated || !strings.Contains(got.body, "name: yaml") {
		t.Errorf("%d %.200q", got.code, got.body)
	}
}

// TestSecretKeepsNoStringData: what a client writes to stringData is stored in data, also in
// managed fields.
func TestSecretKeepsNoStringData(t *testing.T) {
	namespace := server.namespace(t)
	secrets := server.client(t).CoreV1().Secrets(namespace)
	made, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{FieldManager: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if string(made.Data["a"]) != "b" || made.StringData != nil || made.Type != corev1.SecretTypeOpaque {
		t.Errorf("%+v", made)
	}
	if fields := string(made.ManagedFields[0].FieldsV1.Raw); !strings.Contains(fields, `"f:data"`) || strings.Contains(fields, "stringData") {
		t.Errorf("managed fields %s", fields)
	}
	made.Type = "other"
	_, err = secrets.Update(t.Context(), made, metav1.UpdateOptions{})
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) {
		t.Fatalf("another type: %v", err)
	}
	status = err.(apierrors.APIStatus)
	if causes := status.Status().Details.Causes; len(causes) != 1 || causes[0].Field != "type" {
		t.Errorf("reported %d times: %+v", len(causes), causes)
	}
}
