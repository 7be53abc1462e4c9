// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// defaultTokenSeconds is the lifetime of a projected service account token.
const defaultTokenSeconds int64 = 60 * 60

// SetDefaults_Volume makes a volume without a source an emptyDir.
func SetDefaults_Volume(obj *v1.Volume) {
	if ptr.AllPtrFieldsNil(&obj.VolumeSource) {
		obj.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if obj.Image != nil {
		obj.Image.PullPolicy = cmp.Or(obj.Image.PullPolicy, pullPolicyOf(obj.Image.Reference))
	}
}

func SetDefaults_HostPathVolumeSource(obj *v1.HostPathVolumeSource) {
	obj.Type = cmp.Or(obj.Type, new(v1.HostPathUnset))
}

func SetDefaults_SecretVolumeSource(obj *v1.SecretVolumeSource) {
	obj.DefaultMode = cmp.Or(obj.DefaultMode, new(v1.SecretVolumeSourceDefaultMode))
}

func SetDefaults_ConfigMapVolumeSource(obj *v1.ConfigMapVolumeSource) {
	obj.DefaultMode = cmp.Or(obj.DefaultMode, new(v1.ConfigMapVolumeSourceDefaultMode))
}

func SetDefaults_DownwardAPIVolumeSource(obj *v1.DownwardAPIVolumeSource) {
	obj.DefaultMode = cmp.Or(obj.DefaultMode, new(v1.DownwardAPIVolumeSourceDefaultMode))
}

func SetDefaults_ProjectedVolumeSource(obj *v1.ProjectedVolumeSource) {
	obj.DefaultMode = cmp.Or(obj.DefaultMode, new(v1.ProjectedVolumeSourceDefaultMode))
}

func SetDefaults_ServiceAccountTokenProjection(obj *v1.ServiceAccountTokenProjection) {
	obj.ExpirationSeconds = cmp.Or(obj.ExpirationSeconds, new(defaultTokenSeconds))
}
