// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	typed "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
)

// ensured runs Ensure on a store with the given objects.
func ensured(t *testing.T, objects ...runtime.Object) typed.FlowcontrolV1Interface {
	t.Helper()
	client := fake.NewClientset(objects...)
	shared := informers.NewSharedInformerFactory(client, 0).Flowcontrol().V1()
	for _, object := range objects {
		var err error
		switch o := object.(type) {
		case *flowcontrolv1.FlowSchema:
			err = shared.FlowSchemas().Informer().GetStore().Add(o)
		case *flowcontrolv1.PriorityLevelConfiguration:
			err = shared.PriorityLevelConfigurations().Informer().GetStore().Add(o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Ensure(t.Context(), client.FlowcontrolV1(), shared.FlowSchemas().Lister(), shared.PriorityLevelConfigurations().Lister()); err != nil {
		t.Fatal(err)
	}
	return client.FlowcontrolV1()
}

func TestObjectsAreCreated(t *testing.T) {
	client := ensured(t)
	schemas, _ := client.FlowSchemas().List(t.Context(), metav1.ListOptions{})
	levels, _ := client.PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
	if len(schemas.Items) != len(bootstrap.SuggestedFlowSchemas)+len(bootstrap.MandatoryFlowSchemas) ||
		len(levels.Items) != len(bootstrap.SuggestedPriorityLevelConfigurations)+len(bootstrap.MandatoryPriorityLevelConfigurations) {
		t.Errorf("%d schemas, %d levels", len(schemas.Items), len(levels.Items))
	}
}

// TestSuggestedObjects checks that suggested objects are updated until a user changes them.
func TestSuggestedObjects(t *testing.T) {
	const name = "workload-low"
	suggested := named(bootstrap.SuggestedPriorityLevelConfigurations, name, SetObjectDefaults_PriorityLevelConfiguration)
	stored := *suggested.Spec.Limited.NominalConcurrencyShares
	for title, test := range map[string]struct {
		generation int64
		mark       string
		shares     int32
		wantMark   string
	}{
		"unchanged, from an older release": {1, "true", stored, "true"},
		"unchanged, without annotation":    {1, "", stored, "true"},
		"changed by a user":                {2, "", 7, "false"},
		"auto-update disabled":             {1, "false", 7, "false"},
		"auto-update enabled again":        {5, "true", stored, "true"},
	} {
		t.Run(title, func(t *testing.T) {
			level := suggested.DeepCopy()
			level.Generation, level.Annotations = test.generation, nil
			level.Spec.Limited.NominalConcurrencyShares = new(int32(7))
			if test.mark != "" {
				level.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: test.mark}
			}
			got, err := ensured(t, level).PriorityLevelConfigurations().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if *got.Spec.Limited.NominalConcurrencyShares != test.shares || got.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] != test.wantMark {
				t.Errorf("%d shares, marked %q", *got.Spec.Limited.NominalConcurrencyShares, got.Annotations)
			}
		})
	}
}

// TestMandatoryObjects checks that mandatory objects are restored, except for how much the exempt
// level lends, which administrators may change.
func TestMandatoryObjects(t *testing.T) {
	catchAll, exempt := mandatoryFlowSchema("catch-all"), mandatoryLevel("exempt")
	catchAll.Spec.MatchingPrecedence, catchAll.Generation = 5, 9
	exempt.Spec.Exempt.LendablePercent = new(int32(50))
	client := ensured(t, catchAll, exempt)
	schema, err := client.FlowSchemas().Get(t.Context(), "catch-all", metav1.GetOptions{})
	if err != nil || schema.Spec.MatchingPrecedence != flowcontrolv1.FlowSchemaMaxMatchingPrecedence {
		t.Errorf("%v %v", schema, err)
	}
	level, err := client.PriorityLevelConfigurations().Get(t.Context(), "exempt", metav1.GetOptions{})
	if err != nil || *level.Spec.Exempt.LendablePercent != 50 {
		t.Errorf("%v %v", level, err)
	}
}

func TestObsoleteObjectsAreDeleted(t *testing.T) {
	gone := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "old", Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}}
	users := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	client := ensured(t, gone, users)
	if _, err := client.FlowSchemas().Get(t.Context(), "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := client.FlowSchemas().Get(t.Context(), "mine", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
