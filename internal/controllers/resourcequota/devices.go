// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/quota"
)

// reader reads objects for device quotas, with the controller's identity and from the server's
// watch caches.
type reader struct{ live client.Reader }

var fromCache = &metav1.ListOptions{ResourceVersion: quota.FromCache}

// DeviceClasses implements quota.Reader.
func (r reader) DeviceClasses() ([]resourcev1.DeviceClass, error) {
	list := &resourcev1.DeviceClassList{}
	err := r.live.List(context.Background(), list, &client.ListOptions{Raw: fromCache})
	return list.Items, err
}

// ResourceClaims implements quota.Reader.
func (r reader) ResourceClaims(namespace string) ([]resourcev1.ResourceClaim, error) {
	list := &resourcev1.ResourceClaimList{}
	err := r.live.List(context.Background(), list, &client.ListOptions{Namespace: namespace, Raw: fromCache})
	return list.Items, err
}

// Pod implements quota.Reader.
func (r reader) Pod(namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.live.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, pod,
		&client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: quota.FromCache}})
	return pod, err
}
