// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// TestDirectRequests: once all is served, a request of this process passes none of what is for
// connections, such as the header that tells browsers not to keep an answer, and still has to
// be allowed.
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
