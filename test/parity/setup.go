// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// revokeControllers removes the permissions of the server's own controllers, so that they do not
// change the compared objects. Upstream's API server runs no controllers, but both servers must have
// the same ClusterRoleBindings.
func (s *server) revokeControllers(ctx context.Context) error {
	var bindings rbacv1.ClusterRoleBindingList
	if err := s.get(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &bindings); err != nil {
		return err
	}
	var subjects []string
	for _, b := range bindings.Items {
		if !strings.HasPrefix(b.Name, "system:controller:") && !strings.HasPrefix(b.Name, "system:kube-") {
			continue
		}
		answer, err := s.send(ctx, request{Method: http.MethodDelete, Path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/" + b.Name})
		if err != nil {
			return err
		}
		if answer.Code != http.StatusOK {
			return fmt.Errorf("%s: delete binding %s: %s", s.Name, b.Name, answer.raw)
		}
		for _, subject := range b.Subjects {
			user := subject.Name
			if subject.Kind == rbacv1.ServiceAccountKind {
				user = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
			}
			subjects = append(subjects, user)
		}
	}
	for _, user := range subjects {
		if err := s.awaitRevoked(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

// removeClasses removes the StorageClasses of a new server: a default class changes claims, and only
// Kindred has one.
func (s *server) removeClasses(ctx context.Context) error {
	answer, err := s.send(ctx, request{Method: http.MethodDelete, Path: "/apis/storage.k8s.io/v1/storageclasses"})
	if err == nil && answer.Code != http.StatusOK {
		err = fmt.Errorf("%s: delete the StorageClasses: %s", s.Name, answer.raw)
	}
	return err
}

// awaitRevoked waits until the authorizer refuses a controller's writes.
func (s *server) awaitRevoked(ctx context.Context, user string) error {
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Version: "v1", Resource: "pods"},
	}}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	create := request{Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", ContentType: contentJSON, Body: body}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		answer, err := s.send(ctx, create)
		if err != nil {
			return err
		}
		if json.Unmarshal(answer.raw, &review) == nil && answer.Code == http.StatusCreated && !review.Status.Allowed {
			return nil
		}
	}
	return fmt.Errorf("%s: %s may still write", s.Name, user)
}

// prepare creates the objects that manifests refer to. It ignores those of kinds that the server does
// not serve.
func (s *server) prepare(ctx context.Context, served *catalog, documents []map[string]any) error {
	var failed []error
	for _, object := range documents {
		m := manifest{object: object}
		for _, r := range served.order {
			if r.gvk() == m.gvk() {
				failed = append(failed, s.put(ctx, r, m))
				break
			}
		}
	}
	return errors.Join(failed...)
}

// put creates an object with its status.
func (s *server) put(ctx context.Context, r *resource, m manifest) error {
	answer, err := s.send(ctx, post(r.collection(m.namespace()), m.object))
	if err != nil {
		return err
	}
	if answer.Code != http.StatusCreated && answer.Code != http.StatusConflict {
		return fmt.Errorf("%s: set up %s %s: %s", s.Name, r, m.name(), answer.raw)
	}
	status, found := m.object["status"]
	if _, served := r.subresources["status"]; !found || !served || answer.Object == nil {
		return nil
	}
	patch := request{
		Method: http.MethodPatch, Path: r.collection(m.namespace()) + "/" + m.name() + "/status",
		ContentType: contentMerge, Body: encode(map[string]any{"status": status}),
	}
	answer, err = s.send(ctx, patch)
	if err == nil && answer.Code != http.StatusOK {
		err = fmt.Errorf("%s: set up status of %s %s: %s", s.Name, r, m.name(), answer.raw)
	}
	return err
}

// post returns a request that creates an object.
func post(path string, object any) request {
	return request{Method: http.MethodPost, Path: path, ContentType: contentJSON, Body: encode(object)}
}

// encode returns the JSON of a value that was decoded from JSON.
func encode(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // every value was decoded from JSON
	}
	return data
}
