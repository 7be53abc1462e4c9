// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota tells the library's admission plugin, which compares a
// request with the quotas of its namespace
// (k8s.io/apiserver/pkg/admission/plugin/resourcequota), what quotas count.
package resourcequota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/quota"
)

// Initializer hands the evaluators to the library's plugin. It must come after
// the initializer that tells the plugin when the server ends.
func Initializer(c clock.PassiveClock, client kubernetes.Interface) admission.PluginInitializer {
	return configured{c, client}
}

type configured struct {
	clock  clock.PassiveClock
	client kubernetes.Interface
}

// Initialize implements admission.PluginInitializer.
func (c configured) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(quota.Configuration(c.clock, reader{c.client}))
	}
}

// reader reads as the server itself.
type reader struct{ client kubernetes.Interface }

// DeviceClasses implements quota.Reader.
func (r reader) DeviceClasses() ([]resourcev1.DeviceClass, error) {
	list, err := r.client.ResourceV1().DeviceClasses().List(context.Background(), metav1.ListOptions{ResourceVersion: quota.FromCache})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// ResourceClaims implements quota.Reader.
func (r reader) ResourceClaims(namespace string) ([]resourcev1.ResourceClaim, error) {
	list, err := r.client.ResourceV1().ResourceClaims(namespace).List(context.Background(), metav1.ListOptions{ResourceVersion: quota.FromCache})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Pod implements quota.Reader.
func (r reader) Pod(namespace, name string) (*corev1.Pod, error) {
	return r.client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{ResourceVersion: quota.FromCache})
}
