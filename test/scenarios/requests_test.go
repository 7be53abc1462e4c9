// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// TestApply: server-side apply, field ownership and conflicts.
func TestApply(t *testing.T) {
	s := withoutNode(t)
	settings := func(data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {" + data + "}\n"
	}
	apply := func(manager, data string, flags ...string) result {
		args := append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, flags...)
		return runCommand(s.command(args...), settings(data))
	}
	if r := apply("one", "colour: blue, size: small"); r.out != "configmap/settings serverside-applied\n" {
		t.Fatalf("%+v", r)
	}
	if r := apply("two", "colour: red"); r.code == 0 || !containsAll(r.err, `Apply failed with 1 conflict: conflict with "one": .data.colour`) {
		t.Errorf("a field of another manager: %+v", r)
	}
	if r := apply("two", "colour: blue"); r.code != 0 {
		t.Errorf("a field that both want the same: %+v", r)
	}
	if r := apply("two", "colour: red", "--force-conflicts"); r.code != 0 {
		t.Errorf("by force: %+v", r)
	}
	s.prints("red small", "get", "cm", "settings", "-o", "jsonpath={.data.colour} {.data.size}")
	// A field that its only owner no longer applies is removed.
	if r := apply("one", "more: x"); r.code != 0 {
		t.Errorf("fewer fields: %+v", r)
	}
	s.prints(`{"colour":"red","more":"x"}`, "get", "cm", "settings", "-o", "jsonpath={.data}")
	s.contains(s.kubectl("get", "cm", "settings", "-o", "yaml", "--show-managed-fields"), "manager: one", "manager: two", "operation: Apply", "f:colour: {}")

	// Client-side apply: twice unchanged, once with a field removed, and its diff.
	s.input("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: classic}\ndata: {a: a, b: b}\n", "apply", "-f", "-")
	less := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: classic}\ndata: {a: c}\n"
	r := runCommand(s.command("diff", "-f", "-"), less)
	if r.code != 1 || !containsAll(r.out, "-  a: a\n", "-  b: b\n", "+  a: c\n") {
		t.Errorf("diff: %+v", r)
	}
	if out := s.input(less, "apply", "-f", "-"); out != "configmap/classic configured\n" {
		t.Errorf("apply prints %q", out)
	}
	if out := s.input(less, "apply", "-f", "-"); out != "configmap/classic unchanged\n" {
		t.Errorf("apply prints %q", out)
	}
	s.prints(`{"a":"c"}`, "get", "cm", "classic", "-o", "jsonpath={.data}")
}

// TestDryRun: requests are validated and defaulted, and nothing is stored.
func TestDryRun(t *testing.T) {
	s := withoutNode(t)
	s.contains(s.kubectl("create", "deployment", "web", "--image=any:v1", "--dry-run=server", "-o", "yaml"), "revisionHistoryLimit: 10", "maxSurge: 25%", "uid: ")
	s.refused([]string{"NotFound"}, "get", "deployment", "web")
	s.refused([]string{"is invalid"}, "create", "configmap", "Not_A_Name", "--dry-run=server")
	s.kubectl("create", "configmap", "kept", "--from-literal=a=b")
	s.kubectl("patch", "configmap", "kept", "-p", `{"data":{"a":"c"}}`, "--dry-run=server")
	s.kubectl("delete", "configmap", "kept", "--dry-run=server")
	s.prints("b", "get", "configmap", "kept", "-o", "jsonpath={.data.a}")
}

// TestFieldValidation: unknown and duplicate fields are refused, warned about or ignored, as
// requested.
func TestFieldValidation(t *testing.T) {
	s := withoutNode(t)
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndatum: {a: b}\n"
	s.refusedInput(manifest, []string{`strict decoding error: unknown field "datum"`}, "create", "-f", "-")
	s.refusedInput(manifest, []string{`strict decoding error: unknown field "datum"`}, "create", "-f", "-", "--validate=strict")
	r := runCommand(s.command("create", "-f", "-", "--validate=warn"), manifest)
	if r.code != 0 || !strings.Contains(r.err, `Warning: unknown field "datum"`) {
		t.Errorf("--validate=warn: %+v", r)
	}
	s.kubectl("delete", "configmap", "x")
	r = runCommand(s.command("create", "-f", "-", "--validate=ignore"), manifest)
	if r.code != 0 || r.err != "" {
		t.Errorf("--validate=ignore: %+v", r)
	}
	// kubectl patch does not request a validation, so the server warns.
	if r := s.try("patch", "cm", "x", "--type=merge", "-p", `{"metadata":{"label":{"a":"b"}}}`); !strings.Contains(r.err, `Warning: unknown field "metadata.label"`) {
		t.Errorf("patch: %+v", r)
	}
}

// TestPatches: all four types, and their effect on lists.
func TestPatches(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "deployment", "web", "--image=any:v1")
	images := func() string {
		s.Helper()
		return s.jsonpath("{.spec.template.spec.containers[*].image}", "deployment", "web")
	}
	patch := func(kind, body, want string) {
		s.Helper()
		s.kubectl("patch", "deployment", "web", "--type="+kind, "-p", body)
		if got := images(); got != want {
			s.Errorf("after a %s patch the images are %q, want %q", kind, got, want)
		}
	}
	patch("json", `[{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"any:v2"}]`, "any:v2")
	patch("strategic", `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:v1"}]}}}}`, "side:v1 any:v2")
	patch("strategic", `{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}`, "any:v2")
	patch("merge", `{"spec":{"template":{"spec":{"containers":[{"name":"other","image":"other:v1"}]}}}}`, "other:v1")
	s.refused([]string{"the server rejected our request due to an error in our request"}, "patch", "deployment", "web", "--type=json", "-p", `[{"op":"test","path":"/spec/replicas","value":7}]`)

	// Subresources accept patches too.
	s.kubectl("patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":2}}`)
	s.prints("2", "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	s.contains(s.kubectl("get", "deployment", "web", "--subresource=scale", "-o", "yaml"), "kind: Scale", "replicas: 2")
}

// TestListsAndWatches: consistent chunks, and a watch that continues where a list ended.
func TestListsAndWatches(t *testing.T) {
	s := withoutNode(t)
	objects := s.cluster.client(t).CoreV1().ConfigMaps(s.namespace)
	for i := range 25 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%02d", i), Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}}}
		if _, err := objects.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen, version := []string{}, ""
	options := metav1.ListOptions{Limit: 10, LabelSelector: "odd"}
	for page := 1; ; page++ {
		list, err := objects.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		if version == "" {
			version = list.ResourceVersion
			// Changes after the first chunk are not in the other chunks.
			if err := objects.Delete(t.Context(), "n-24", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if list.ResourceVersion != version {
			t.Errorf("chunk %d is of version %s, the first of %s", page, list.ResourceVersion, version)
		}
		for _, item := range list.Items {
			seen = append(seen, item.Name)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	if len(seen) != 25 || seen[0] != "n-00" || seen[24] != "n-24" {
		t.Errorf("the chunks have %v", seen)
	}
	s.prints("12\n", "get", "cm", "-l", "odd=true", "--chunk-size=5", "-o", `go-template={{len .items}}{{"\n"}}`)
	s.prints("configmap/n-03\n", "get", "cm", "--field-selector=metadata.name=n-03", "-o", "name")

	// From the revision of the list: first the deletion, then new events, then bookmarks.
	w, err := objects.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, LabelSelector: "odd", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := next(t, w); event.Type != watch.Deleted || event.Object.(*corev1.ConfigMap).Name != "n-24" {
		t.Errorf("first came %v", event)
	}
	s.kubectl("label", "cm", "n-03", "odd-")
	if event := next(t, w); event.Type != watch.Deleted || event.Object.(*corev1.ConfigMap).Name != "n-03" {
		t.Errorf("what no longer matches is gone for the watcher; came %v", event)
	}

	// A watch can begin with the existing objects; a bookmark marks their end.
	yes := true
	initial, err := objects.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true, LabelSelector: "odd=true"})
	if err != nil {
		t.Fatal(err)
	}
	defer initial.Stop()
	for range 11 {
		if event := next(t, initial); event.Type != watch.Added {
			t.Fatalf("%v", event)
		}
	}
	if event := next(t, initial); event.Type != watch.Bookmark || event.Object.(*corev1.ConfigMap).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("after the initial events came %v", event)
	}
	// An invalid continue token is refused.
	_, err = objects.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: "nonsense"})
	if !apierrors.IsBadRequest(err) && !apierrors.IsResourceExpired(err) {
		t.Errorf("a wrong continue: %v", err)
	}
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, open := <-w.ResultChan():
		if !open {
			t.Fatal("the watch ended")
		}
		return event
	case <-time.After(patience):
		t.Fatal("nothing came")
		return watch.Event{}
	}
}

// TestProtobuf: protobuf clients get the same objects.
func TestProtobuf(t *testing.T) {
	s := withoutNode(t)
	config := s.cluster.config(t)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects := client.CoreV1().ConfigMaps(s.namespace)
	created, err := objects.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, BinaryData: map[string][]byte{"x": {0, 255}}}, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(created.Name, "p-") || len(created.Name) != 7 {
		t.Fatalf("%v, %v", created, err)
	}
	s.prints("AP8=", "get", "cm", created.Name, "-o", "jsonpath={.binaryData.x}")
	if _, err := objects.Patch(t.Context(), created.Name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	list, err := objects.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 { // the other one is kube-root-ca.crt
		t.Errorf("%d items, %v", len(list.Items), err)
	}
	_, err = objects.Get(t.Context(), "nowhere", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("an error in protobuf: %v", err)
	}
}

// TestDiscovery: what kubectl learns about the API from the server.
func TestDiscovery(t *testing.T) {
	s := withoutNode(t)
	s.contains(s.kubectl("explain", "deployment.spec.strategy"), "GROUP:      apps", "KIND:       Deployment", "VERSION:    v1", "FIELD: strategy <DeploymentStrategy>",
		"rollingUpdate", "enum: Recreate, RollingUpdate")
	s.contains(s.kubectl("explain", "pod", "--recursive"), "terminationGracePeriodSeconds", "readinessProbe")
	s.contains(s.kubectl("api-resources", "-o", "name"), "deployments.apps\n", "configmaps\n", "customresourcedefinitions.apiextensions.k8s.io\n")
	s.contains(s.kubectl("api-versions"), "apps/v1\n", "rbac.authorization.k8s.io/v1\n", "\nv1\n")
	s.contains(s.kubectl("version"), "Server Version: v1.37.1")
	s.contains(s.kubectl("cluster-info"), "Kubernetes control plane")
	s.contains(s.kubectl("get", "--raw", "/readyz?verbose"), "[+]etcd ok", "readyz check passed")

	// Custom resources are in discovery once they are established.
	s.apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crons.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: crons, singular: cron, kind: Cron, shortNames: [cr], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Schedule, type: string, jsonPath: .spec.schedule}, {name: Age, type: date, jsonPath: .metadata.creationTimestamp}]
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [schedule]
            properties:
              schedule: {type: string, pattern: "^[a-z]+$", description: When it runs.}
              replicas: {type: integer, default: 1, maximum: 5}
            x-kubernetes-validations: [{rule: "self.schedule != 'never'", message: never is no schedule}]
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`)
	s.kubectl("wait", "--for=condition=Established", "crd/crons.example.com", "--timeout", patience.String())
	cron := func(name, spec string) string {
		return "apiVersion: example.com/v1\nkind: Cron\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
	}
	s.apply(cron("daily", "schedule: daily"))
	s.table("NAME SCHEDULE AGE\ndaily daily *", "get", "cr")
	s.prints("1", "get", "cron", "daily", "-o", "jsonpath={.spec.replicas}")
	s.refusedInput(cron("x", "replicas: 9"), []string{`The Cron "x" is invalid`, "spec.schedule: Required value", "spec.replicas: Invalid value: 9"}, "create", "-f", "-")
	s.refusedInput(cron("x", "schedule: never"), []string{"never is no schedule"}, "create", "-f", "-")
	s.refusedInput(cron("x", "schedule: a, more: b"), []string{`unknown field "spec.more"`}, "create", "-f", "-")
	s.prints("cron.example.com/daily scaled\n", "scale", "cron", "daily", "--replicas=3")
	s.eventually("the kind is explained", func() error {
		r := s.try("explain", "cron.spec.schedule")
		if !strings.Contains(r.out, "When it runs.") {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
	s.kubectl("delete", "crd", "crons.example.com")
	s.eventually("the kind is gone", func() error {
		r := s.try("get", "--raw", "/apis/example.com/v1/namespaces/"+s.namespace+"/crons")
		if r.code == 0 || !strings.Contains(r.err, "the server could not find the requested resource") {
			return fmt.Errorf("exit status %d, %s%s", r.code, r.out, r.err)
		}
		return nil
	})
}

// TestNamespaceDeletion: a namespace is deleted with its content, and reports what it waits for.
func TestNamespaceDeletion(t *testing.T) {
	s := withoutNode(t)
	s.createNamespaceWith("doomed-" + s.namespace)
	doomed := "doomed-" + s.namespace
	s.kubectl("delete", "namespace", doomed, "--timeout", patience.String())
	s.gone("namespace", doomed)
	s.createNamespaceWith(doomed)

	s.kubectl("patch", "configmap", "one", "-n", doomed, "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	s.kubectl("delete", "namespace", doomed, "--wait=false")
	s.eventually("the namespace says what holds it", func() error {
		out := s.jsonpath(`{.status.phase}: {.status.conditions[?(@.type=="NamespaceFinalizersRemaining")].message}`, "namespace", doomed)
		if out != "Terminating: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.refused([]string{"forbidden: unable to create new content in namespace " + doomed + " because it is being terminated"}, "create", "configmap", "late", "-n", doomed)
	s.kubectl("patch", "configmap", "one", "-n", doomed, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.gone("namespace", doomed)
}

func (s *session) createNamespaceWith(name string) {
	s.Helper()
	s.kubectl("create", "namespace", name)
	s.kubectl("create", "configmap", "one", "-n", name)
	s.kubectl("create", "deployment", "web", "--image=any:v1", "--replicas=2", "-n", name)
	s.kubectl("rollout", "status", "deployment/web", "-n", name, "--timeout", patience.String())
}
