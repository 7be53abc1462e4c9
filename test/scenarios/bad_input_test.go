// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestBadInput: a malformed, too large or too deeply nested body is refused with a Status, and does
// not harm the server.
func TestBadInput(t *testing.T) {
	s := withoutNode(t)
	config := s.cluster.config(t)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl("create", "configmap", "target", "--from-literal=a=b")

	const depth = 10_000
	deepJSON := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"x":` + strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth) + `}`
	deepList := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"x":` + strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth) + `}`
	deepYAML := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deep}\nx: " + strings.Repeat("{a: ", depth) + "1" + strings.Repeat("}", depth) + "\n"
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
		"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n"
	large := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"x":"` + strings.Repeat("x", 3<<20) + `"}}`
	const (
		jsonType, yamlType, protobuf = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
		jsonPatch, mergePatch        = "application/json-patch+json", "application/merge-patch+json"
		strategic, apply             = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
	)
	objects := "/api/v1/namespaces/" + s.namespace + "/configmaps"
	target := objects + "/target"
	for _, tt := range []badRequest{
		{"empty", "POST", objects, jsonType, "", []int{400}},
		{"not JSON", "POST", objects, jsonType, "{not json", []int{400}},
		{"not YAML", "POST", objects, yamlType, "a: [b", []int{400}},
		{"not protobuf", "POST", objects, protobuf, "k8s\x00\xff\xff\xff", []int{400}},
		{"protobuf without prefix", "POST", objects, protobuf, "hello", []int{400}},
		{"random bytes", "POST", objects, jsonType, "\x00\x01\x02\xff", []int{400}},
		{"a list where an object belongs", "POST", objects, jsonType, "[]", []int{400}},
		{"null", "POST", objects, jsonType, "null", []int{422}},
		{"another kind", "POST", objects, jsonType, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`, []int{400}},
		{"no such version", "POST", objects, jsonType, `{"apiVersion":"v9","kind":"ConfigMap","metadata":{"name":"x"}}`, []int{400}},
		{"wrong type of a field", "POST", objects, jsonType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":7}}`, []int{400}},
		{"unknown media type", "POST", objects, "text/plain", "hello", []int{415}},
		{"larger than 3 MiB", "POST", objects, jsonType, large, []int{413}},
		{"deep JSON", "POST", objects, jsonType, deepJSON, []int{400}},
		{"deep list", "POST", objects, jsonType, deepList, []int{400}},
		{"deep YAML", "POST", objects, yamlType, deepYAML, []int{400}},
		{"YAML bomb", "POST", objects, yamlType, bomb, []int{400}},
		{"deep JSON update", "PUT", target, jsonType, strings.Replace(deepJSON, `"deep"`, `"target"`, 1), []int{400}},
		{"deep merge patch", "PATCH", target, mergePatch, strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth), []int{400, 422}},
		{"deep strategic patch", "PATCH", target, strategic, strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth), []int{400, 422}},
		{"deep JSON patch", "PATCH", target, jsonPatch, `[{"op":"add","path":"/x","value":` + strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth) + `}]`, []int{400, 422}},
		{"deep apply", "PATCH", target + "?fieldManager=m", apply, deepYAML, []int{400}},
		{"JSON patch that is not a list", "PATCH", target, jsonPatch, `{"op":"add"}`, []int{400}},
		{"JSON patch of a missing field", "PATCH", target, jsonPatch, `[{"op":"remove","path":"/data/none"}]`, []int{422}},
		{"JSON patch of ten thousand and one steps", "PATCH", target, jsonPatch, `[` + strings.Repeat(`{"op":"test","path":"/data/a","value":"b"},`, 10_000) + `{"op":"test","path":"/data/a","value":"b"}]`, []int{413}},
		{"apply without a manager", "PATCH", target, apply, "apiVersion: v1\nkind: ConfigMap\n", []int{400, 422}},
		{"empty binding", "POST", "/api/v1/namespaces/" + s.namespace + "/bindings", jsonType, "{}", []int{422}},
		{"unknown patch", "PATCH", target, "application/x-patch", "{}", []int{415}},
		{"wrong query", "GET", objects + "?limit=many", "", "", []int{400}},
		{"wrong selector", "GET", objects + "?labelSelector=((", "", "", []int{400}},
		{"wrong field selector", "GET", "/api/v1/pods?fieldSelector=spec.nothing%3Dx", "", "", []int{400}},
		{"wrong continue", "GET", objects + "?limit=1&continue=nonsense", "", "", []int{400}},
		{"wrong resource version", "GET", objects + "?resourceVersion=x", "", "", []int{400}},
		{"no such resource", "GET", "/api/v1/nothings", "", "", []int{404}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.send(t, client, config.Host) })
	}
	s.prints("b", "get", "cm", "target", "-o", "jsonpath={.data.a}")
	if !s.cluster.running() {
		t.Error("the server is gone")
	}
}

// badRequest is a request that must be refused with one of the given codes.
type badRequest struct {
	name, method, path, mediaType, body string
	codes                               []int
}

func (b badRequest) send(t *testing.T, client *http.Client, host string) {
	request, err := http.NewRequestWithContext(t.Context(), b.method, host+b.path, strings.NewReader(b.body))
	if err != nil {
		t.Fatal(err)
	}
	if b.mediaType != "" {
		request.Header.Set("Content-Type", b.mediaType)
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); !slices.Contains(b.codes, response.StatusCode) || err != nil && response.StatusCode != 404 {
		t.Fatalf("%s, want %v: %.500s", response.Status, b.codes, body)
	}
	if response.StatusCode != 404 && (status.Kind != "Status" || status.Status != metav1.StatusFailure || int(status.Code) != response.StatusCode || status.Reason == "" || status.Message == "") {
		t.Errorf("not a Status that says what is wrong: %.500s", body)
	}
	if len(status.Message) > 2000 {
		t.Errorf("the message has %d bytes", len(status.Message))
	}
}

// TestNesting: every request with a body refuses one that is nested too deep, whether below, at or
// beyond the decoders' own limit, and changes nothing.
func TestNesting(t *testing.T) {
	s := withoutNode(t)
	config := s.cluster.config(t)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	s.apply("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: nests.nesting.example}\n" +
		"spec:\n  group: nesting.example\n  scope: Namespaced\n  names: {plural: nests, singular: nest, kind: Nest}\n" +
		"  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n")
	s.kubectl("wait", "--for=condition=Established", "crd/nests.nesting.example")
	s.apply("apiVersion: nesting.example/v1\nkind: Nest\nmetadata: {name: target}\n")
	s.kubectl("create", "configmap", "target", "--from-literal=a=b")

	namespace := "/namespaces/" + s.namespace
	core, custom := "/api/v1"+namespace, "/apis/nesting.example/v1"+namespace
	for _, levels := range []int{1001, 9_000, 9_997, 10_000, 20_000} {
		deep := strings.Repeat(`{"a":`, levels) + `1` + strings.Repeat(`}`, levels)
		nest := `{"apiVersion":"nesting.example/v1","kind":"Nest","metadata":{"name":"deep"},"spec":` + strings.Repeat(`{"a":`, levels-1) + `1` + strings.Repeat(`}`, levels)
		for _, b := range []badRequest{
			{"review", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "application/json", deep, []int{400}},
			{"token", "POST", core + "/serviceaccounts/default/token", "application/json", deep, []int{400}},
			{"binding", "POST", core + "/bindings", "application/json", deep, []int{400}},
			{"CRD", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", deep, []int{400}},
			{"delete options", "DELETE", core + "/configmaps/target", "application/json", deep, []int{400}},
			{"delete options of a collection", "DELETE", core + "/configmaps", "application/json", deep, []int{400}},
			{"delete options of a custom resource", "DELETE", custom + "/nests/target", "application/json", deep, []int{400}},
			{"custom resource", "POST", custom + "/nests", "application/json", nest, []int{400}},
			{"custom resource, no type", "POST", custom + "/nests", "", nest, []int{400}},
			{"custom resource, YAML", "POST", custom + "/nests", "application/yaml", nest, []int{400}},
			{"custom resource, update", "PUT", custom + "/nests/target", "application/json", strings.Replace(nest, `"deep"`, `"target"`, 1), []int{400}},
			{"custom resource, merge patch", "PATCH", custom + "/nests/target", "application/merge-patch+json", deep, []int{400}},
			{"custom resource, apply", "PATCH", custom + "/nests/target?fieldManager=m", "application/apply-patch+yaml", strings.Replace(nest, `"deep"`, `"target"`, 1), []int{400}},
		} {
			t.Run(fmt.Sprintf("%d levels/%s", levels, b.name), func(t *testing.T) { b.send(t, client, config.Host) })
		}
	}
	for _, body := range []string{"k8s\x00", "junk", "k8s\x00\n\x00"} {
		b := badRequest{"", "POST", custom + "/nests", "application/vnd.kubernetes.protobuf", body, []int{415}}
		t.Run(fmt.Sprintf("protobuf/%q", body), func(t *testing.T) { b.send(t, client, config.Host) })
	}
	s.prints("nest.nesting.example/target\n", "get", "nests", "-o", "name")
	s.prints("configmap/target\n", "get", "configmap", "target", "-o", "name")
	s.kubectl("delete", "crd", "nests.nesting.example", "--timeout="+patience.String())
}

// TestRefusals: the errors that kubectl shows for common mistakes.
func TestRefusals(t *testing.T) {
	s := withoutNode(t)
	refused := func(manifest string, parts ...string) {
		s.Helper()
		s.refusedInput(manifest, parts, "create", "-f", "-")
	}
	refused("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n",
		`The ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters`)
	refused("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {}\n", `The Pod "x" is invalid: spec.containers: Required value`)
	refused("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {container: [{}]}\n",
		`Error from server (BadRequest): error when creating "STDIN": Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.container"`)
	refused("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  restartPolicy: Sometimes\n  containers: [{name: c, image: i}, {name: c, image: i}]\n",
		`The Pod "x" is invalid:`, `spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`, `spec.containers[1].name: Duplicate value: "c"`)
	refused("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec:\n  selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: c}}, spec: {containers: [{name: c, image: i}]}}\n",
		`The Deployment "x" is invalid: spec.template.metadata.labels: Invalid value: {"a":"c"}: `+"`selector` does not match template `labels`")
	refused("apiVersion: apps/v1\nkind: Nothing\nmetadata: {name: x}\n", `no matches for kind "Nothing" in version "apps/v1"`)

	s.kubectl("create", "configmap", "here")
	s.refused([]string{`configmaps "here" already exists`}, "create", "configmap", "here")
	s.refused([]string{`Error from server (NotFound): configmaps "nowhere" not found`}, "delete", "configmap", "nowhere")
	s.refused([]string{`error: the server doesn't have a resource type "nothings"`}, "get", "nothings")
	s.refused([]string{`namespaces "nowhere" not found`}, "create", "configmap", "x", "-n", "nowhere")

	// Errors name immutable fields.
	s.kubectl("create", "deployment", "web", "--image=any:v1")
	s.refused([]string{`spec.selector: Invalid value`, `field is immutable`}, "patch", "deployment", "web", "-p", `{"spec":{"selector":{"matchLabels":{"app":"web","more":"x"}},"template":{"metadata":{"labels":{"more":"x"}}}}}`)
	// Conflicts are reported.
	old := s.kubectl("get", "configmap", "here", "-o", "yaml")
	s.kubectl("label", "configmap", "here", "a=b")
	s.refusedInput(old, []string{"Error from server (Conflict)", "the object has been modified; please apply your changes to the latest version and try again"}, "replace", "-f", "-")
}
