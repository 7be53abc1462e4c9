// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"net/http"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// TestDirectRequests: once all paths are served, an in-process request passes none of the filters
// for connections, such as the one that sets Cache-Control, and is still authorized.
func TestDirectRequests(t *testing.T) {
	s := own(t, func(*Config) {})
	config := s.Config(&user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	err = within(10*time.Second, func() error {
		response, err := client.Get(config.Host + "/api/v1/namespaces/default/secrets/one")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("jane reads a secret: %s", response.Status)
		}
		if response.Header.Get("Cache-Control") != "" {
			return errors.New("the request took the long way")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPartsAreNotQueued: priority and fairness decides about in-process requests, except those of the cluster's parts.
func TestPartsAreNotQueued(t *testing.T) {
	for name, queued := range map[string]bool{
		"jane": true, "system:serviceaccount:default:x": true,
		"system:kube-scheduler": false, "system:node:n": false, "system:serviceaccount:kube-system:replicaset-controller": false,
	} {
		client, err := rest.HTTPClientFor(server.Config(&user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}))
		if err != nil {
			t.Fatal(err)
		}
		got := server.do(t, client, http.MethodGet, "/api", "")
		if schema := got.header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); (schema != "") != queued {
			t.Errorf("%s: queued by the schema %q; want %t", name, schema, queued)
		}
	}
}
