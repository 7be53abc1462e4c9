// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ResourceSlice publishes a part of a driver's pool of devices.
var ResourceSlice = generic.Kind[*resourcev1.ResourceSlice]{
	Name: "ResourceSlice", Plural: "resourceslices", ClusterScoped: true,
	New:     func() *resourcev1.ResourceSlice { return &resourcev1.ResourceSlice{} },
	NewList: func() runtime.Object { return &resourcev1.ResourceSliceList{} },
	Spec:    func(s *resourcev1.ResourceSlice) any { return &s.Spec },
	Prepare: prepareSlice,
	Validate: func(_ context.Context, c *check.Checker, s *resourcev1.ResourceSlice) {
		validateSlice(c, &s.Spec, nil)
	},
	ValidateUpdate: func(_ context.Context, c *check.Checker, s, old *resourcev1.ResourceSlice) {
		validateSlice(c, &s.Spec, &old.Spec)
	},
	Warnings: warnOfDriverName,
	Fields: map[string]func(*resourcev1.ResourceSlice) string{
		resourcev1.ResourceSliceSelectorNodeName: sliceNode,
		resourcev1.ResourceSliceSelectorDriver:   func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver },
		resourcev1.ResourceSliceSelectorPoolName: func(s *resourcev1.ResourceSlice) string { return s.Spec.Pool.Name },
	},
	FieldSelection: generic.FieldSelection{Indexed: []string{resourcev1.ResourceSliceSelectorNodeName}},
	Deletion:       generic.Deletion[*resourcev1.ResourceSlice]{ReturnObject: true},
	Columns: []generic.Column[*resourcev1.ResourceSlice]{
		{Name: "Node", Description: sliceDoc["nodeName"], Cell: func(s *resourcev1.ResourceSlice) any { return sliceNode(s) }},
		{Name: "Driver", Description: sliceDoc["driver"], Cell: func(s *resourcev1.ResourceSlice) any { return s.Spec.Driver }},
		{Name: "Pool", Description: resourcev1.ResourcePool{}.SwaggerDoc()["name"], Cell: func(s *resourcev1.ResourceSlice) any { return s.Spec.Pool.Name }},
	},
}

// prepareSlice increments the generation even if the only changed fields are dropped, as upstream
// does: the driver requested a change.
func prepareSlice(_ context.Context, s, old *resourcev1.ResourceSlice) {
	if old != nil && !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
		s.Generation = old.Generation + 1
	}
	dropAlphaSlice(&s.Spec)
}

var sliceDoc = resourcev1.ResourceSliceSpec{}.SwaggerDoc()

func sliceNode(s *resourcev1.ResourceSlice) string { return ptr.Deref(s.Spec.NodeName, "") }

func warnOfDriverName(_ context.Context, s, _ *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}
