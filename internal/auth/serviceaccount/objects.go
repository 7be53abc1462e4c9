// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
)

// Objects finds the objects that tokens refer to. If the cache has the object with the right UID,
// it is taken from there; otherwise it is read from the API, because the cache may not have a new
// pod yet. Secrets are always read from the API: tokens bound to them are rare, and not worth a
// copy of every Secret in memory.
type Objects struct {
	client          kubernetes.Interface
	serviceAccounts listers.ServiceAccountLister
	pods            listers.PodLister
	nodes           listers.NodeLister
}

// NewObjects returns Objects that reads from the given informers and falls back to the client,
// which must not authenticate with a service account token itself.
func NewObjects(client kubernetes.Interface, core informers.Interface) *Objects {
	return &Objects{
		client:          client,
		serviceAccounts: core.ServiceAccounts().Lister(),
		pods:            core.Pods().Lister(),
		nodes:           core.Nodes().Lister(),
	}
}

func (o *Objects) serviceAccount(ctx context.Context, namespace, name string, uid types.UID) (*corev1.ServiceAccount, error) {
	if cached, err := o.serviceAccounts.ServiceAccounts(namespace).Get(name); err == nil && cached.UID == uid {
		return cached, nil
	}
	return o.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (o *Objects) pod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	if cached, err := o.pods.Pods(namespace).Get(name); err == nil && cached.UID == uid {
		return cached, nil
	}
	return o.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (o *Objects) node(ctx context.Context, name string, uid types.UID) (*corev1.Node, error) {
	if cached, err := o.nodes.Get(name); err == nil && cached.UID == uid {
		return cached, nil
	}
	return o.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// anyNode returns a node by its name, whatever its UID.
func (o *Objects) anyNode(ctx context.Context, name string) (*corev1.Node, error) {
	if cached, err := o.nodes.Get(name); err == nil {
		return cached, nil
	}
	return o.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (o *Objects) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return o.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}
