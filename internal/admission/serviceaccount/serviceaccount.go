// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount gives each new pod its identity: the service account that
// it names, or the "default" account of its namespace, with the account's image
// pull secrets and a volume with its token. It refuses a pod whose account does not
// exist.
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

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// Name is the plugin's name in the API server's configuration.
const Name = "ServiceAccount"

const (
	defaultAccount = "default"
	// volumePrefix names token volumes. A pod that already has one keeps it.
	volumePrefix = "kube-api-access-"
	mountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenExpiration tells the issuer to extend the token and report its late use.
	tokenExpiration = 60*60 + 7

	// A namespace's default account is created after the namespace; pods created
	// before it wait.
	defaultAttempts = 10
	retryInterval   = 150 * time.Millisecond
)

// Plugin is the admission plugin.
type Plugin struct {
	*informer.Handler[listers.ServiceAccountLister]
	client kubernetes.Interface
	clock  clock.Clock
}

var (
	_ admission.MutationInterface            = &Plugin{}
	_ admission.ValidationInterface          = &Plugin{}
	_ initializer.WantsExternalKubeClientSet = &Plugin{}
)

// New returns the plugin.
func New(clock clock.Clock) *Plugin {
	handler := informer.New(Name, func(f informers.SharedInformerFactory) informer.Informer[listers.ServiceAccountLister] {
		return f.Core().V1().ServiceAccounts()
	}, admission.Create, admission.Update)
	return &Plugin{Handler: handler, clock: clock}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil {
		return fmt.Errorf("%s needs a client", Name)
	}
	return p.Handler.ValidateInitialization()
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	pod, ok := podOf(a)
	if !ok || a.GetOperation() != admission.Create {
		return nil
	}
	// The node deletes its mirror pod if admission changes it.
	if isMirror(pod) {
		return p.Validate(ctx, a, o)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
		// Defaulting copies the name to the deprecated field; so does the plugin.
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

// podOf returns the pod of a request that the plugin checks.
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

// account returns the service account of a pod, or a Forbidden error.
func (p *Plugin) account(ctx context.Context, a admission.Attributes, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	account, err := p.find(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w", a.GetNamespace(), pod.Spec.ServiceAccountName, err))
	}
	return account, nil
}

// find reads a service account from the cache, then from the API. It retries for
// "default", which the service account controller may be about to create.
func (p *Plugin) find(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := p.Lister.ServiceAccounts(namespace).Get(name)
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

// checkMirror refuses a mirror pod that would widen its node's access.
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

// automounts reports whether a pod gets its account's token. The pod decides, then
// the account; the default is true.
func automounts(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if pod.Spec.AutomountServiceAccountToken != nil {
		return *pod.Spec.AutomountServiceAccountToken
	}
	return ptr.Deref(account.AutomountServiceAccountToken, true)
}

// mountToken mounts the token in each container with no mount at mountPath.
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

// tokenVolume returns the name of the pod's token volume, and whether the volume
// exists, as in a copy of another pod.
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

// projection returns what a client in a pod needs: token, CA and namespace.
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
