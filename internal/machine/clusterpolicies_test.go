// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// served is what an API lists for any group version.
type served struct {
	discovery.ServerResourcesInterface
	names []string
	err   error
}

func (s served) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	for _, name := range s.names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, s.err
}

func TestServesClusterPolicies(t *testing.T) {
	broken := errors.New("no route to host")
	for name, test := range map[string]struct {
		api  served
		want bool
		err  error
	}{
		"served":          {served{names: []string{"other", "clusternetworkpolicies"}}, true, nil},
		"another kind":    {served{names: []string{"adminnetworkpolicies"}}, false, nil},
		"no such group":   {served{err: apierrors.NewNotFound(schema.GroupResource{}, "")}, false, nil},
		"does not answer": {served{err: broken}, false, broken},
	} {
		if got, err := servesClusterPolicies(test.api); got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
