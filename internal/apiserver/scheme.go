// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// newScheme returns a scheme with the types of the groups. generic.Group says why each type is
// registered twice.
func newScheme(groups []generic.Group) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for _, group := range groups {
		if err := group.Register(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func extensionsScheme() *runtime.Scheme { return apiextensions.Scheme }
func aggregatorScheme() *runtime.Scheme { return aggregator.Scheme }

// ownershipScheme returns a scheme with the types of Kindred's own group, which client-go's scheme
// does not have.
func ownershipScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(ownership.AddToScheme(scheme))
	return scheme
}

// metricsScheme returns a scheme with the types of metrics.k8s.io, which client-go's scheme does not
// have either.
func metricsScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(metricsv1.AddToScheme(scheme))
	utilruntime.Must(metricsv1beta1.AddToScheme(scheme))
	return scheme
}
