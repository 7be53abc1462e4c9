// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is storage.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     storagev1.GroupName,
		Priority: 16800,
		Scheme:   []func(*runtime.Scheme) error{storagev1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			StorageClass,
			VolumeAttributesClass,
			VolumeAttachment,
			CSIDriver,
			CSINode,
			CSIStorageCapacity,
		}}},
	}
}
