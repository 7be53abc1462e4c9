// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/deletion"
)

// TestDeletionsAreRecorded: the store records the caller of every request that deletes an object.
func TestDeletionsAreRecorded(t *testing.T) {
	const configMaps, pods = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
	configMap := schema.GroupResource{Resource: "configmaps"}
	pod := schema.GroupResource{Resource: "pods"}
	create := func(t *testing.T, path, body string) {
		t.Helper()
		if got := server.do(t, server.admin, http.MethodPost, path, body); got.code != http.StatusCreated {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	create(t, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"evicted"}}`)
	for name, tt := range map[string]struct {
		resource            schema.GroupResource
		name, path, body    string
		method, at, options string
		want                metav1.DeletionPropagation // empty: no record
	}{
		"one": {configMap, "deleted-one", configMaps, `{"metadata":{"name":"deleted-one"}}`, http.MethodDelete, "/deleted-one", "", "Background"},
		"foreground": {configMap, "deleted-foreground", configMaps, `{"metadata":{"name":"deleted-foreground"}}`, http.MethodDelete, "/deleted-foreground",
			`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`, "Foreground"},
		"dry run":    {configMap, "deleted-never", configMaps, `{"metadata":{"name":"deleted-never"}}`, http.MethodDelete, "/deleted-never?dryRun=All", "", ""},
		"collection": {configMap, "deleted-together", configMaps, `{"metadata":{"name":"deleted-together","labels":{"together":"yes"}}}`, http.MethodDelete, "?labelSelector=together%3Dyes", "", "Background"},
		"eviction": {pod, "deleted-eviction", pods, `{"metadata":{"name":"deleted-eviction"},"spec":{"serviceAccountName":"evicted","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`, http.MethodPost, "/deleted-eviction/eviction",
			`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"deleted-eviction"}}`, "Background"},
		"custom": {schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, "widgets.example.com", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets,
			http.MethodDelete, "/widgets.example.com", "", "Background"},
	} {
		t.Run(name, func(t *testing.T) {
			create(t, tt.path, tt.body)
			if got := server.do(t, server.admin, tt.method, tt.path+tt.at, tt.options); got.code >= 300 {
				t.Fatalf("%d %s", got.code, got.body)
			}
			found, err := server.backend.Records().Requested(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			record, recorded := deletion.Record{}, false
			for _, r := range found {
				if r.Resource == tt.resource && strings.HasSuffix(r.Name, tt.name) {
					record, recorded = r, true
				}
			}
			if recorded != (tt.want != "") {
				t.Fatalf("recorded: %v %+v", recorded, record)
			}
			if recorded && (record.By.User != "kubernetes-admin" || record.By.Agent != "Go-http-client/2.0" || record.By.AuditID == "" || record.Policy != tt.want || record.UID == "") {
				t.Errorf("recorded: %+v", record)
			}
		})
	}
}
