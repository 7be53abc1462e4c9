// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

type answer func(*http.Request) (code int, body string)

func (a answer) RoundTrip(req *http.Request) (*http.Response, error) {
	code, body := a(req)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// TestDeleteRequests checks the path and body of DELETE requests, and the fallback to JSON for a
// server that does not read protobuf.
func TestDeleteRequests(t *testing.T) {
	background, version, uid := metav1.DeletePropagationBackground, "7", types.UID("u")
	want := metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &background,
	}
	for _, test := range []struct {
		gvr             schema.GroupVersionResource
		namespace, path string
		jsonOnly        int // the status code for requests that are not JSON, if the server refuses them
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "default", "/api/v1/namespaces/default/configmaps/a", 0},
		{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", "/api/v1/nodes/a", 0},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, "x", "/apis/apps/v1/namespaces/x/replicasets/a", 0},
		{schema.GroupVersionResource{Group: "old.example.com", Version: "v1", Resource: "things"}, "x", "/apis/old.example.com/v1/namespaces/x/things/a", http.StatusUnsupportedMediaType},
		{schema.GroupVersionResource{Group: "own.example.com", Version: "v1", Resource: "things"}, "x", "/apis/own.example.com/v1/namespaces/x/things/a", http.StatusBadRequest},
	} {
		var accepted []string
		c, err := NewClient(&rest.Config{Host: "http://server.invalid", Transport: answer(func(req *http.Request) (int, string) {
			kind := req.Header.Get("Content-Type")
			if test.jsonOnly != 0 && kind != runtime.ContentTypeJSON {
				return test.jsonOnly, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}`
			}
			body, _ := io.ReadAll(req.Body)
			// Decode as an API server does.
			codecs, v1, got := metainternalversionscheme.Codecs, schema.GroupVersion{Version: "v1"}, metav1.DeleteOptions{}
			info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), kind)
			into, _, err := codecs.DecoderToVersion(info.Serializer, v1).Decode(body, new(v1.WithKind("DeleteOptions")), &got)
			if err != nil || into != &got {
				t.Errorf("%s: %v %v", kind, into, err)
			}
			got.TypeMeta = want.TypeMeta
			if diff := cmp.Diff(want, got); diff != "" || req.Method != http.MethodDelete {
				t.Errorf("%s %s (-want +got):\n%s", req.Method, kind, diff)
			}
			accepted = append(accepted, kind+" "+req.URL.Path)
			return http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
		})})
		if err != nil {
			t.Fatal(err)
		}
		options := want
		options.TypeMeta = metav1.TypeMeta{}
		if err := c.Resource(test.gvr).Namespace(test.namespace).Delete(t.Context(), "a", options); err != nil {
			t.Error(err)
		}
		kind := runtime.ContentTypeProtobuf
		if test.jsonOnly != 0 {
			kind = runtime.ContentTypeJSON
		}
		if diff := cmp.Diff([]string{kind + " " + test.path}, accepted); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}
}

// TestRefusedDeletions: the client returns the error of an API server, of a server without the
// resource, and of a proxy.
func TestRefusedDeletions(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"no","code":%d}`
	for name, test := range map[string]struct {
		code int
		body string
		is   func(error) bool
	}{
		"gone":        {http.StatusNotFound, fmt.Sprintf(status, metav1.StatusReasonNotFound, 404), isObjectNotFound},
		"changed":     {http.StatusConflict, fmt.Sprintf(status, metav1.StatusReasonConflict, 409), apierrors.IsConflict},
		"not allowed": {http.StatusForbidden, fmt.Sprintf(status, metav1.StatusReasonForbidden, 403), apierrors.IsForbidden},
		"not served":  {http.StatusNotFound, "404 page not found", func(err error) bool { return apierrors.IsNotFound(err) && !isObjectNotFound(err) }},
		"an error page of a proxy": {http.StatusBadGateway, "<html>", func(err error) bool {
			return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && strings.Contains(err.Error(), "<html>")
		}},
	} {
		c, err := NewClient(&rest.Config{Host: "http://server.invalid/behind", Transport: answer(func(req *http.Request) (int, string) {
			if req.URL.Path != "/behind/api/v1/namespaces/x/pods/a" || req.UserAgent() == "" {
				t.Errorf("%s by %q", req.URL.Path, req.UserAgent())
			}
			return test.code, test.body
		})})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("x").Delete(t.Context(), "a", metav1.DeleteOptions{})
		if err == nil || !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
