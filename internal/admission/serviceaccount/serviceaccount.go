// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount gives each new pod the identity that it runs as: the
// service account that it names, or its namespace's "default", with that
// account's pull secrets and a volume with its token. A pod whose account does
// not exist is refused.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Name is the plugin's name in the API server's configuration.
const Name = "ServiceAccount"

const (
	defaultAccount = "default"
	// volumePrefix marks the token's volume; a pod that brings one keeps it.
	volumePrefix = "kube-api-access-"
	mountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenExpiration makes the issuer extend the token and report late use.
	tokenExpiration = 60*60 + 7

	// A namespace's default account is created after the namespace, so pods
	// that come right after it wait a moment.
	defaultAttempts = 10
	retryInterval   = 150 * time.Millisecond
)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	client   kubernetes.Interface
	accounts listers.ServiceAccountLister
	clock    clock.Clock
}

var (
	_ admission.MutationInterface                  = &Plugin{}
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeClientSet       = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New(clock clock.Clock) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), clock: clock}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.accounts = f.Core().V1().ServiceAccounts().Lister()
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil || p.accounts == nil {
		return fmt.Errorf("%s needs a client and informers", Name)
	}
	return nil
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	pod, ok := podOf(a)
	if !ok || a.GetOperation() != admission.Create {
		return nil
	}
	// A mirror pod must stay as the node wrote it, or the node deletes it.
	if isMirror(pod) {
		return p.Validate(ctx, a, o)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
		// The field's old name has its value too, as in defaulted pods.
		pod.Spec.DeprecatedServiceAccount = defaultAccount
	}
	account, err := p.account(ctx, a, pod)
	if err != nil {
		return err
	}
	if automounts(account, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	return p.Validate(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := podOf(a)
	if !ok {
		return nil
	}
	debugging := a.GetOperation() == admission.Update && a.GetSubresource() == "ephemeralcontainers"
	if a.GetOperation() != admission.Create && !debugging {
		return nil
	}
	if isMirror(pod) && !debugging {
		return checkMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		return admission.NewForbidden(a, fmt.Errorf("no service account specified for pod %s/%s", a.GetNamespace(), pod.Name))
	}
	account, err := p.account(ctx, a, pod)
	if err != nil {
		return err
	}
	if !limitsSecrets(account) {
		return nil
	}
	if err := checkSecrets(account, pod, debugging); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// podOf returns the pod that a request is about, if the plugin cares.
func podOf(a admission.Attributes) (*corev1.Pod, bool) {
	if a.GetResource().GroupResource() != corev1.Resource("pods") {
		return nil, false
	}
	if sub := a.GetSubresource(); sub != "" && sub != "ephemeralcontainers" {
		return nil, false
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	return pod, ok
}

// account returns the service account of a pod, or a refusal.
func (p *Plugin) account(ctx context.Context, a admission.Attributes, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	account, err := p.find(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w", a.GetNamespace(), pod.Spec.ServiceAccountName, err))
	}
	return account, nil
}

// find looks in the cache, then asks the API: for "default" several times,
// since its controller may be about to create it.
func (p *Plugin) find(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := p.accounts.ServiceAccounts(namespace).Get(name)
	if !apierrors.IsNotFound(err) {
		return account, err
	}
	for attempt := 1; ; attempt++ {
		account, err := p.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return account, err
		}
		if name != defaultAccount || attempt == defaultAttempts {
			return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.clock.After(retryInterval):
		}
	}
}

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// checkMirror refuses mirror pods that would give a node access to more than it has.
func checkMirror(a admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return admission.NewForbidden(a, errors.New("a mirror pod may not reference service accounts"))
	}
	if refersToSecrets(pod) {
		return admission.NewForbidden(a, errors.New("a mirror pod may not reference secrets"))
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return admission.NewForbidden(a, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}

// automounts says whether a pod gets its account's token: the pod decides, then
// the account; by default it does.
func automounts(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if pod.Spec.AutomountServiceAccountToken != nil {
		return *pod.Spec.AutomountServiceAccountToken
	}
	return ptr.Deref(account.AutomountServiceAccountToken, true)
}

// mountToken mounts the token in each container that has nothing at its place.
func mountToken(pod *corev1.Pod) {
	name, exists := tokenVolume(pod)
	mount := corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: mountPath}
	needed := false
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if !mountsAt(&containers[i], mountPath) {
				containers[i].VolumeMounts = append(containers[i].VolumeMounts, mount)
				needed = true
			}
		}
	}
	if needed && !exists {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: projection()}})
	}
}

// tokenVolume returns the name of the pod's token volume, and whether the pod
// brings one: what was copied from another pod has it already.
func tokenVolume(pod *corev1.Pod) (name string, exists bool) {
	for _, volume := range pod.Spec.Volumes {
		if strings.HasPrefix(volume.Name, volumePrefix) {
			return volume.Name, true
		}
	}
	return names.SimpleNameGenerator.GenerateName(volumePrefix), false
}

func mountsAt(container *corev1.Container, path string) bool {
	for _, mount := range container.VolumeMounts {
		if mount.MountPath == path {
			return true
		}
	}
	return false
}

// projection is all that a client in a pod needs: token, CA and namespace.
func projection() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](tokenExpiration)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}
