// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
)

// hashLabel distinguishes the pods of one template from those of all others.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// splitNewest returns the ReplicaSet with the Deployment's template, or nil, and all others
// from oldest to youngest. If several have the template (as after an upgrade that changed
// defaults), it returns the one that was created first, as upstream does.
func splitNewest(d *appsv1.Deployment, all []*appsv1.ReplicaSet) (newest *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	all = slices.Clone(all)
	slices.SortFunc(all, byAge)
	for _, rs := range all {
		if newest == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			newest = rs
			continue
		}
		old = append(old, rs)
	}
	return newest, old
}

func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// sameTemplate reports whether two templates are equal without their hash label. Hashes
// cannot be compared: they change whenever the API gains a field.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, labelled := t.Labels[hashLabel]; !labelled {
		return t
	}
	out := *t
	out.Labels = maps.Clone(t.Labels)
	delete(out.Labels, hashLabel)
	return &out
}

// templateHash returns the hash of a template. The owner's collision count is part of the
// hash, so that incrementing it after a name collision gives another name.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	fmt.Fprint(h, dump.ForHash(*template))
	if collisions != nil {
		count := make([]byte, 8)
		binary.LittleEndian.PutUint32(count, uint32(*collisions))
		h.Write(count)
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// newReplicaSet returns an empty ReplicaSet for the Deployment's template. Its name is derived
// from the template, so that creating it twice fails.
func newReplicaSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	hash := templateHash(&d.Spec.Template, d.Status.CollisionCount)
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       d.Namespace,
			Name:            replicaSetName(d.Name, hash),
			Labels:          maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}
}

func withHash(labels map[string]string, hash string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, labels)
	out[hashLabel] = hash
	return out
}

func replicaSetName(deployment, hash string) string {
	room := validation.DNS1123SubdomainMaxLength - len("-") - len(hash)
	return deployment[:min(len(deployment), room)] + "-" + hash
}
