// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestNodesOfVolumes: a node may read the volumes that its pods claim, the Secrets of these
// volumes, and the VolumeAttachments of the node.
func TestNodesOfVolumes(t *testing.T) {
	admin, namespace := server.client(t), server.namespace(t)
	node := server.as(t, "system:node:volumes-1", user.NodesGroup)
	const own, other = "volumes-own", "volumes-other"
	for _, name := range []string{own, other} {
		claim := corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, ClaimRef: &claim,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name,
				NodePublishSecretRef: &corev1.SecretReference{Namespace: namespace, Name: name}}},
		}}
		if _, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.CoreV1().PersistentVolumes().Delete(t.Context(), name, metav1.DeleteOptions{}) })
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := admin.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: map[string]string{own: "volumes-1", other: "volumes-2"}[name], Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(name)}}}
		if _, err := admin.StorageV1().VolumeAttachments().Create(t.Context(), attachment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "volumes-1", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: own}}}}}}
	if _, err := admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for what, get := range map[string]func(string) error{
		"volume": func(name string) error {
			_, err := node.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
			return err
		},
		"secret of a volume": func(name string) error {
			_, err := node.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
			return err
		},
		"attachment": func(name string) error {
			_, err := node.StorageV1().VolumeAttachments().Get(t.Context(), name, metav1.GetOptions{})
			return err
		},
	} {
		// The informers may lag.
		if err := within(5*time.Second, func() error { return get(own) }); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		forbidden(t, what, get(other), "no relationship found between node 'volumes-1' and this object")
	}
}
