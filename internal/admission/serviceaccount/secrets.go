// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/auth/node"
)

// enforceAnnotation on a service account limits its pods to the secrets that the
// account lists. It is deprecated in favor of separate namespaces.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

func limitsSecrets(account *corev1.ServiceAccount) bool {
	limited, err := strconv.ParseBool(account.Annotations[enforceAnnotation])
	return err == nil && limited
}

func refersToSecrets(pod *corev1.Pod) bool { return len(node.ReferencesOf(pod).Secrets) > 0 }

// checkSecrets returns an error if a pod refers to a secret that its account does not
// list. While a pod is being debugged, only its ephemeral containers are checked.
func checkSecrets(account *corev1.ServiceAccount, pod *corev1.Pod, debugging bool) error {
	listed := func(name string) bool {
		return slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == name })
	}
	if debugging {
		for _, c := range pod.Spec.EphemeralContainers {
			if err := checkEnvironment("ephemeral container", c.Name, c.Env, c.EnvFrom, account, listed); err != nil {
				return err
			}
		}
		return nil
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil && !listed(volume.Secret.SecretName) {
			return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", volume.Secret.SecretName, account.Name)
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if err := checkEnvironment("init container", c.Name, c.Env, c.EnvFrom, account, listed); err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.Containers {
		if err := checkEnvironment("container", c.Name, c.Env, c.EnvFrom, account, listed); err != nil {
			return err
		}
	}
	for i, secret := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, secret) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, secret.Name, account.Name)
		}
	}
	return nil
}

func checkEnvironment(kind, name string, env []corev1.EnvVar, from []corev1.EnvFromSource, account *corev1.ServiceAccount, listed func(string) bool) error {
	for _, variable := range env {
		if variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil {
			continue
		}
		if secret := variable.ValueFrom.SecretKeyRef.Name; !listed(secret) {
			return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
				kind, name, variable.Name, secret, account.Name)
		}
	}
	for _, source := range from {
		if source.SecretRef != nil && !listed(source.SecretRef.Name) {
			return fmt.Errorf("%s %s with envFrom referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
				kind, name, source.SecretRef.Name, account.Name)
		}
	}
	return nil
}
