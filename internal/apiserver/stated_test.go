// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// TestStatedVersions: an object without apiVersion, and without a default for it, is decoded
// without a known type.
func TestStatedVersions(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub := schema.GroupVersion{Group: appsv1.GroupName, Version: runtime.APIVersionInternal}
	scheme.AddKnownTypes(hub, &appsv1.Deployment{})
	codecs := serializer.NewCodecFactory(scheme)
	json, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	v1 := appsv1.SchemeGroupVersion.WithKind("Deployment")
	for name, test := range map[string]struct {
		version  string
		defaults *schema.GroupVersionKind
		read     string
		strict   string
	}{
		"stated":               {`"apiVersion":"apps/v1",`, nil, "web", ""},
		"default":              {"", &v1, "web", ""},
		"left out":             {"", nil, "", `strict decoding error: unknown field "metadata", unknown field "spec"`},
		"empty":                {`"apiVersion":"",`, nil, "", `strict decoding error: unknown field "metadata", unknown field "spec"`},
		"the internal version": {`"apiVersion":"apps/__internal",`, nil, "", `strict decoding error: unknown field "metadata", unknown field "spec"`},
		"no group":             {`"apiVersion":"v1",`, nil, "error", `no kind "Deployment" is registered for version "v1"`},
		"not a string":         {`"apiVersion":1,`, nil, "error", "couldn't get version/kind"},
		"no such object":       {`"apiVersion":"apps/v7",`, nil, "error", "no kind"},
	} {
		body := `{` + test.version + `"kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2}}`
		for _, decoder := range []runtime.Decoder{json.Serializer, json.StrictSerializer} {
			into := &appsv1.Deployment{}
			out, _, err := statedVersions{codecs, scheme}.DecoderToVersion(decoder, hub).Decode([]byte(body), test.defaults, into)
			wantError := test.read == "error" || decoder == runtime.Decoder(json.StrictSerializer) && test.strict != ""
			switch {
			case (err != nil) != wantError || wantError && !strings.Contains(err.Error(), test.strict):
				t.Errorf("%s: error %v, want %q", name, err, test.strict)
			case test.read == "error":
			case out != runtime.Object(into) || into.Name != test.read || (into.Spec.Replicas != nil) != (test.read != ""):
				t.Errorf("%s: read %+v", name, into)
			}
		}
	}
}

// TestPatchedVersion: a patch cannot remove an object's apiVersion.
func TestPatchedVersion(t *testing.T) {
	namespace := server.namespace(t)
	if _, err := server.client(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("kept", map[string]string{"a": "1"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const undeterminable = "the name of the object (kept based on URL) was undeterminable: name must be provided"
	const unknown = `strict decoding error: unknown field "data", unknown field "metadata"`
	for name, test := range map[string]struct {
		media, patch, validation string
		code                     int
		message                  string
	}{
		"merge":           {"application/merge-patch+json", `{"apiVersion":null}`, "", http.StatusBadRequest, undeterminable},
		"merge, empty":    {"application/merge-patch+json", `{"apiVersion":""}`, "Ignore", http.StatusBadRequest, undeterminable},
		"merge, strict":   {"application/merge-patch+json", `{"apiVersion":null}`, "Strict", http.StatusUnprocessableEntity, unknown},
		"json":            {"application/json-patch+json", `[{"op":"remove","path":"/apiVersion"}]`, "Warn", http.StatusBadRequest, undeterminable},
		"json, strict":    {"application/json-patch+json", `[{"op":"remove","path":"/apiVersion"}]`, "Strict", http.StatusUnprocessableEntity, unknown},
		"json, a tested":  {"application/json-patch+json", `[{"op":"test","path":"/apiVersion","value":"v1"}]`, "Strict", http.StatusOK, ""},
		"json, the kind":  {"application/json-patch+json", `[{"op":"remove","path":"/kind"}]`, "Strict", http.StatusOK, ""},
		"merge, the kind": {"application/merge-patch+json", `{"kind":null,"data":{"b":"2"}}`, "Strict", http.StatusOK, ""},
	} {
		got := server.do(t, server.admin, http.MethodPatch, "/api/v1/namespaces/"+namespace+"/configmaps/kept?fieldValidation="+test.validation,
			test.patch, "Content-Type", test.media)
		if got.code != test.code || test.message != "" && !strings.Contains(got.status(t).Message, test.message) {
			t.Errorf("%s: %d %s, want %d with %s", name, got.code, got.body, test.code, cmp.Or(test.message, "no message"))
		}
	}
}

// TestListsAreStreamed: the serializer of a group encodes a list item by item. A list that is encoded as a whole takes a buffer
// of its size, which k8s.io/apiserver keeps for later responses and watches.
func TestListsAreStreamed(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &Server{scheme: scheme, enabled: serverstorage.NewResourceConfig(), installed: sets.New[schema.GroupVersion]()}
	codecs := s.groupInfo(generic.Group{Name: corev1.GroupName}, nil).NegotiatedSerializer
	list := &corev1.ConfigMapList{Items: make([]corev1.ConfigMap, 100)}
	for i := range list.Items {
		list.Items[i].Data = map[string]string{"key": strings.Repeat("x", 1000)}
	}
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
		largest := largestWrite(0)
		if err := codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(list, &largest); err != nil {
			t.Fatal(err)
		}
		if largest > 2000 {
			t.Errorf("%s: the list was written in pieces of up to %d bytes", media, largest)
		}
	}
}

// largestWrite is an io.Writer that remembers the size of the largest write.
type largestWrite int

func (l *largestWrite) Write(p []byte) (int, error) {
	*l = max(*l, largestWrite(len(p)))
	return len(p), nil
}
