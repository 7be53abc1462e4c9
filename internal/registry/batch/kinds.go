// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is the API group batch.
func Group() generic.Group {
	return generic.Group{
		Name:     batchv1.GroupName,
		Priority: 17400,
		Scheme:   []func(*runtime.Scheme) error{batchv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			Job,
			CronJob,
		}}},
	}
}
