// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds installs the CustomResourceDefinitions of optional parts.
package crds

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"
)

// Ensure creates a CustomResourceDefinition, given as YAML, unless one with its name exists, and returns when the API
// server serves it. An existing definition is not changed: it may be newer, or have been installed by a user. It is an error
// if that one does not serve the version, or if ctx ends before.
func Ensure(ctx context.Context, client clientset.Interface, definition []byte, version string) error {
	wanted := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(definition, wanted); err != nil {
		return fmt.Errorf("decode a CustomResourceDefinition: %w", err)
	}
	have, err := Create(ctx, client, wanted)
	if err != nil {
		return err
	}
	if !serves(have, version) {
		return fmt.Errorf("the CustomResourceDefinition %s of this cluster does not serve the version %s: update it, or delete it to have it installed at the next start (which deletes its objects)", have.Name, version)
	}
	if established(have) {
		return nil
	}
	if err := await(ctx, client, have); err != nil {
		return fmt.Errorf("wait until the CustomResourceDefinition %s is established: %w", have.Name, err)
	}
	return nil
}

// Create creates a CustomResourceDefinition unless one with its name exists, and returns the one that exists then.
func Create(ctx context.Context, client clientset.Interface, wanted *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	have, err := definitions.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = definitions.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("install the CustomResourceDefinition %s: %w", wanted.Name, err)
	}
	return have, nil
}

// await watches the definition from the state that was read.
func await(ctx context.Context, client clientset.Interface, have *apiextensionsv1.CustomResourceDefinition) error {
	changes, err := client.ApiextensionsV1().CustomResourceDefinitions().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, have.Name).String(), ResourceVersion: have.ResourceVersion,
	})
	if err != nil {
		return err
	}
	_, err = watchtools.UntilWithoutRetry(ctx, changes, func(e watch.Event) (bool, error) {
		now, ok := e.Object.(*apiextensionsv1.CustomResourceDefinition)
		return ok && e.Type != watch.Deleted && established(now), nil
	})
	return err
}

func serves(d *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served
	})
}

func established(d *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}
