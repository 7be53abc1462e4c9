// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package environment computes the environment variables of a container.
//
// It has three layers, and a later one overrides the earlier ones: variables of Services, envFrom
// and env. $(VAR) in a value of env refers to a variable before it, in any layer. The environment is
// computed at each start of a container, in a stable order, so that two starts differ only if their
// sources differ.
package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/node/downward"
	"github.com/kindred-project/kindred/internal/node/source"
)

// Objects reads the objects that a pod refers to. Package objects implements it.
type Objects interface {
	ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error)
}

// Options are the sources of values.
type Options struct {
	Objects Objects
	// Services lists all Services. ServicesSynced reports whether it has synced.
	Services       corelisters.ServiceLister
	ServicesSynced func() bool
	// API is where pods of this node reach the API server. It replaces the address of the Service
	// default/kubernetes if nothing routes ClusterIPs. The zero value leaves that address alone.
	API netip.AddrPort
	// Allocatable returns the node's allocatable resources, the default of missing limits.
	Allocatable func() v1.ResourceList
	// OpenFile opens a file of a prepared volume, for fileKeyRef.
	OpenFile func(pod types.UID, volume, path string) (io.ReadCloser, error)
}

// Builder computes environments.
type Builder struct {
	options Options
}

// New returns a Builder.
func New(options Options) *Builder { return &Builder{options: options} }

// For implements pod.Environment.
func (b *Builder) For(ctx context.Context, pod *v1.Pod, container *v1.Container) ([]*runtimeapi.KeyValue, error) {
	services, err := b.services(pod)
	if err != nil {
		return nil, err
	}
	r := &resolver{options: b.options, pod: pod, container: container, services: services, declared: newVariables()}
	for i := range container.EnvFrom {
		if err := r.addAll(ctx, &container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range container.Env {
		if err := r.add(ctx, &container.Env[i]); err != nil {
			return nil, err
		}
	}
	return r.result(), nil
}

func (b *Builder) services(pod *v1.Pod) (map[string]string, error) {
	// A pod that starts together with the agent must get the variables of the API server's Service.
	// Static pods must start without it.
	if !source.IsStatic(pod) && !b.options.ServicesSynced() {
		return nil, fmt.Errorf("services have not yet been read at least once, cannot construct envvars")
	}
	all, err := b.options.Services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("failed to list services when setting up env vars")
	}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	return serviceVariables(redirectAPI(servicesFor(all, pod.Namespace, links), b.options.API)), nil
}

// resolver builds one container's environment.
type resolver struct {
	options   Options
	pod       *v1.Pod
	container *v1.Container
	services  map[string]string
	declared  *variables
}

// addAll adds all keys of a ConfigMap or Secret.
func (r *resolver) addAll(ctx context.Context, source *v1.EnvFromSource) error {
	data, err := r.bulk(ctx, source)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		r.declared.set(source.Prefix+key, data[key])
	}
	return nil
}

func (r *resolver) bulk(ctx context.Context, source *v1.EnvFromSource) (map[string]string, error) {
	switch {
	case source.ConfigMapRef != nil:
		configMap, err := r.options.Objects.ConfigMap(ctx, r.pod, source.ConfigMapRef.Name)
		if err != nil {
			return nil, ignoreOptional(err, source.ConfigMapRef.Optional)
		}
		return configMap.Data, nil
	case source.SecretRef != nil:
		secret, err := r.options.Objects.Secret(ctx, r.pod, source.SecretRef.Name)
		if err != nil {
			return nil, ignoreOptional(err, source.SecretRef.Optional)
		}
		return text(secret.Data), nil
	}
	return nil, nil
}

// add adds one declared variable, unless its source is optional and missing.
func (r *resolver) add(ctx context.Context, declared *v1.EnvVar) error {
	if declared.Value != "" || declared.ValueFrom == nil {
		r.declared.set(declared.Name, Expand(declared.Value, r.lookup))
		return nil
	}
	value, found, err := r.value(ctx, declared.ValueFrom)
	if err != nil || !found {
		return err
	}
	r.declared.set(declared.Name, value)
	return nil
}

func (r *resolver) value(ctx context.Context, source *v1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case source.FieldRef != nil:
		value, err = downward.Field(r.pod, source.FieldRef.FieldPath)
		return value, true, err
	case source.ResourceFieldRef != nil:
		value, err = downward.Resource(r.pod, r.container, source.ResourceFieldRef, r.options.Allocatable())
		return value, true, err
	case source.ConfigMapKeyRef != nil:
		return r.configMapKey(ctx, source.ConfigMapKeyRef)
	case source.SecretKeyRef != nil:
		return r.secretKey(ctx, source.SecretKeyRef)
	case source.FileKeyRef != nil:
		return r.fileKey(source.FileKeyRef)
	}
	return "", true, nil
}

func (r *resolver) configMapKey(ctx context.Context, ref *v1.ConfigMapKeySelector) (string, bool, error) {
	configMap, err := r.options.Objects.ConfigMap(ctx, r.pod, ref.Name)
	if err != nil {
		return "", false, ignoreOptional(err, ref.Optional)
	}
	value, ok := configMap.Data[ref.Key]
	if !ok && !ptr.Deref(ref.Optional, false) {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, r.pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (r *resolver) secretKey(ctx context.Context, ref *v1.SecretKeySelector) (string, bool, error) {
	secret, err := r.options.Objects.Secret(ctx, r.pod, ref.Name)
	if err != nil {
		return "", false, ignoreOptional(err, ref.Optional)
	}
	value, ok := secret.Data[ref.Key]
	if !ok && !ptr.Deref(ref.Optional, false) {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, r.pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

func (r *resolver) fileKey(ref *v1.FileKeySelector) (string, bool, error) {
	file, err := r.options.OpenFile(r.pod.UID, ref.VolumeName, ref.Path)
	if errors.Is(err, fs.ErrNotExist) && ptr.Deref(ref.Optional, false) {
		return "", false, nil
	}
	if err != nil {
		// The error would disclose paths of the node.
		return "", false, fmt.Errorf("couldn't parse env file")
	}
	defer file.Close()
	value, ok, err := parseFile(file, ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file: %w", err)
	}
	if !ok && !ptr.Deref(ref.Optional, false) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, ok, nil
}

// lookup resolves $(VAR). The container's own variables override those of Services.
func (r *resolver) lookup(name string) (string, bool) {
	if value, ok := r.declared.values[name]; ok {
		return value, true
	}
	value, ok := r.services[name]
	return value, ok
}

func (r *resolver) result() []*runtimeapi.KeyValue {
	out := make([]*runtimeapi.KeyValue, 0, len(r.services)+len(r.declared.names))
	for _, name := range slices.Sorted(maps.Keys(r.services)) {
		if _, hidden := r.declared.values[name]; !hidden {
			out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(r.services[name])})
		}
	}
	for _, name := range r.declared.names {
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(r.declared.values[name])})
	}
	return out
}

// variables is a map that keeps its names in the order of their first appearance.
type variables struct {
	names  []string
	values map[string]string
}

func newVariables() *variables { return &variables{values: map[string]string{}} }

func (v *variables) set(name, value string) {
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// ignoreOptional returns nil for a missing object with an optional reference, else err.
func ignoreOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
		return nil
	}
	return err
}

func text(data map[string][]byte) map[string]string {
	out := make(map[string]string, len(data))
	for key, value := range data {
		out[key] = string(value)
	}
	return out
}
