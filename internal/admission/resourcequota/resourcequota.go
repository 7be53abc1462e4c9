// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota configures the admission plugin of
// k8s.io/apiserver/pkg/admission/plugin/resourcequota, which charges requests to the
// quotas of their namespace, with the evaluators of package quota.
package resourcequota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/quota"
)

// Initializer gives the evaluators to the plugin. It must run after the initializer
// that sets the plugin's drained notification. serves reports whether the server serves a resource.
func Initializer(c clock.PassiveClock, client kubernetes.Interface, serves func(schema.GroupVersionResource) bool) admission.PluginInitializer {
	return pluginInitializer{c, client, serves}
}

type pluginInitializer struct {
	clock  clock.PassiveClock
	client kubernetes.Interface
	serves func(schema.GroupVersionResource) bool
}

// Initialize implements admission.PluginInitializer.
func (i pluginInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(quota.Configuration(i.clock, reader{i.client}, i.serves))
	}
}

// reader reads objects with the identity of the API server.
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
