// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
)

// manifests is the scheme of manifests, with the defaults and validations of the API.
var manifests = sync.OnceValues(func() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(corev1.AddToScheme(scheme), AddToScheme(scheme))
})

// DecodePods decodes a Pod or a PodList, YAML or JSON, as the API decodes pods that a client creates: with the same defaults
// and rules. complete is called between defaults and validation with each pod.
func DecodePods(text []byte, complete func(*corev1.Pod) error) ([]*corev1.Pod, error) {
	scheme, err := manifests()
	if err != nil {
		return nil, err
	}
	text, err = yaml.ToJSON(text)
	if err != nil {
		return nil, err
	}
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDecoder(corev1.SchemeGroupVersion), text)
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	switch o := object.(type) {
	case *corev1.Pod:
		pods = append(pods, o)
	case *corev1.PodList:
		for i := range o.Items {
			pods = append(pods, &o.Items[i])
		}
	default:
		return nil, fmt.Errorf("invalid pod: a %s is not a pod", object.GetObjectKind().GroupVersionKind().Kind)
	}
	for _, p := range pods {
		if err := checkManifest(scheme, p, complete); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

func checkManifest(scheme *runtime.Scheme, p *corev1.Pod, complete func(*corev1.Pod) error) error {
	if p.Name == "" {
		return errors.New("invalid pod: name is needed for the pod")
	}
	ctx := context.Background()
	p.Status = corev1.PodStatus{}
	preparePod(ctx, p, nil)
	if err := complete(p); err != nil {
		return err
	}
	errs := check.Run(func(c *check.Checker) { podspec.ValidatePodCreate(c, p) })
	if errs = append(errs, scheme.Validate(ctx, DeclaredOptions(), p)...); len(errs) > 0 {
		return fmt.Errorf("invalid pod: %w", errs.ToAggregate())
	}
	return nil
}
