// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// kind is a kind of object that pods refer to, by its singular name in the kubelet's messages.
type kind string

const (
	configMaps kind = "configmap"
	secrets    kind = "secret"
)

// object is a ConfigMap or a Secret.
type object interface {
	metav1.Object
	runtime.Object
}

func (k kind) get(ctx context.Context, client kubernetes.Interface, namespace, name string) (object, error) {
	if k == secrets {
		return client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (k kind) example() object {
	if k == secrets {
		return &v1.Secret{}
	}
	return &v1.ConfigMap{}
}

// listWatch lists and watches the single object with this name.
func (k kind) listWatch(client kubernetes.Interface, namespace, name string) cache.ListerWatcher {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	only := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = selector
		return options
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if k == secrets {
				return client.CoreV1().Secrets(namespace).List(ctx, only(options))
			}
			return client.CoreV1().ConfigMaps(namespace).List(ctx, only(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if k == secrets {
				return client.CoreV1().Secrets(namespace).Watch(ctx, only(options))
			}
			return client.CoreV1().ConfigMaps(namespace).Watch(ctx, only(options))
		},
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, client)
}

func isImmutable(o object) bool {
	switch o := o.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}
