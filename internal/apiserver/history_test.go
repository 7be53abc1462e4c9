// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/storage"
)

// TestHistoryIsWhatTheAPIShowed: past states in the history are what the API returned then,
// whatever the keys, the encoding and the encryption of a resource.
func TestHistoryIsWhatTheAPIShowed(t *testing.T) {
	e := storage.Encryption{File: filepath.Join(t.TempDir(), "encryption.yaml")}
	const configuration = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{"resources": ["*.*"],
		"providers": [{"secretbox": {"keys": [{"name": "one", "secret": "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY="}]}}, {"identity": {}}]}]}`
	if err := os.WriteFile(e.File, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	s := own(t, func(c *Config) { c.Encryption = e })
	history := s.backend.History()
	const things = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.history.example"},
		"spec":{"group":"history.example","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	if got := s.do(t, s.admin, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", things); got.code != http.StatusCreated {
		t.Fatalf("%d %s", got.code, got.body)
	}

	for _, tt := range []struct {
		resource schema.GroupResource
		path     string
		body     string
	}{
		{schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets},
		{schema.GroupResource{Group: "history.example", Resource: "things"}, "/apis/history.example/v1/namespaces/default/things",
			`{"apiVersion":"history.example/v1","kind":"Thing","metadata":{"name":"one"},"value":7}`},
		{schema.GroupResource{Resource: "services"}, "/api/v1/namespaces/default/services",
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"one"},"spec":{"ports":[{"port":80}]}}`},
		{schema.GroupResource{Resource: "endpoints"}, "/api/v1/namespaces/default/endpoints",
			`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"two"}}`},
		{schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
			`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"one"},"spec":{"defaultBackend":{"service":{"name":"one","port":{"number":80}}}}}`},
		{schema.GroupResource{Resource: "replicationcontrollers"}, "/api/v1/namespaces/default/replicationcontrollers",
			`{"apiVersion":"v1","kind":"ReplicationController","metadata":{"name":"one"},"spec":{"replicas":0,"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
		{schema.GroupResource{Resource: "nodes"}, "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"one"}}`},
		{schema.GroupResource{Resource: "secrets"}, "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one"},"stringData":{"a":"b"}}`},
		{schema.GroupResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
			`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"one"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"A","name":"a"},"maxReplicas":2}}`},
	} {
		t.Run(tt.resource.String(), func(t *testing.T) {
			created := &unstructured.Unstructured{}
			err := within(10*time.Second, func() error {
				got := s.do(t, s.admin, http.MethodPost, tt.path, tt.body)
				if got.code != http.StatusCreated {
					return fmt.Errorf("%d %s", got.code, got.body)
				}
				return created.UnmarshalJSON([]byte(got.body))
			})
			if err != nil {
				t.Fatal(err)
			}
			name := created.GetName()
			if got := s.do(t, s.admin, http.MethodDelete, tt.path+"/"+name, ""); got.code != http.StatusOK {
				t.Fatalf("%d %s", got.code, got.body)
			}
			revision, err := strconv.ParseInt(created.GetResourceVersion(), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			then, err := history.At(t.Context(), tt.resource, created.GetNamespace(), name, revision)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := asJSON(t, then), asJSON(t, created); got != want {
				t.Errorf("at %d it was\n%s\nand the API showed\n%s", revision, got, want)
			}
			if before, err := history.At(t.Context(), tt.resource, created.GetNamespace(), name, revision-1); !apierrors.IsNotFound(err) {
				t.Errorf("before its creation: %v, %v", before, err)
			}
			n := 0
			for object, err := range history.List(t.Context(), tt.resource, created.GetNamespace(), revision) {
				if err != nil {
					t.Fatal(err)
				}
				if object.GetUID() == created.GetUID() {
					n++
				}
			}
			if n != 1 {
				t.Errorf("it is %d times in the list", n)
			}
		})
	}
}

func asJSON(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	content, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
