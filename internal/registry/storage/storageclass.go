// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// A class with one of these annotations is the default for claims without a class.
const (
	defaultAnnotation      = "storageclass.kubernetes.io/is-default-class"
	olderDefaultAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// StorageClass describes how volumes are provisioned for claims that name it.
var StorageClass = generic.Kind[*storagev1.StorageClass]{
	Name: "StorageClass", Plural: "storageclasses", ShortNames: []string{"sc"}, ClusterScoped: true,
	Metadata:       generic.Metadata{ValidateAsNew: true},
	New:            func() *storagev1.StorageClass { return &storagev1.StorageClass{} },
	NewList:        func() runtime.Object { return &storagev1.StorageClassList{} },
	Validate:       validateStorageClass,
	ValidateUpdate: validateStorageClassUpdate,
	Warnings:       storageClassWarnings,
	Deletion:       generic.Deletion[*storagev1.StorageClass]{ReturnObject: true},
	Endpoints:      generic.Endpoints{Replace: func(store *generic.Store) rest.Storage { return &classStore{store} }},
	Columns: []generic.Column[*storagev1.StorageClass]{
		{Name: "Provisioner", Description: storageClassDoc["provisioner"], Cell: func(c *storagev1.StorageClass) any { return c.Provisioner }},
		{Name: "ReclaimPolicy", Description: storageClassDoc["reclaimPolicy"], Cell: func(c *storagev1.StorageClass) any {
			return string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
		}},
		{Name: "VolumeBindingMode", Description: storageClassDoc["volumeBindingMode"], Cell: func(c *storagev1.StorageClass) any {
			return string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate))
		}},
		{Name: "AllowVolumeExpansion", Description: storageClassDoc["allowVolumeExpansion"], Cell: func(c *storagev1.StorageClass) any { return ptr.Deref(c.AllowVolumeExpansion, false) }},
	},
}

var storageClassDoc = storagev1.StorageClass{}.SwaggerDoc()

// SetDefaults_StorageClass defaults to volumes that are provisioned as soon as they are claimed and
// deleted with their claims.
func SetDefaults_StorageClass(c *storagev1.StorageClass) {
	if c.ReclaimPolicy == nil {
		c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimDelete)
	}
	if c.VolumeBindingMode == nil {
		c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
	}
}

// classStore marks the default class in lists. If several classes are marked as default, it is the
// newest.
type classStore struct{ *generic.Store }

func (s *classStore) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	table, err := s.Store.ConvertToTable(ctx, object, options)
	list, ok := object.(*storagev1.StorageClassList)
	if err != nil || !ok {
		return table, err
	}
	if i := defaultClass(list.Items); i >= 0 {
		table.Rows[i].Cells[0] = list.Items[i].Name + " (default)"
	}
	return table, nil
}

// defaultClass returns the index of the default class, or -1.
func defaultClass(classes []storagev1.StorageClass) int {
	found := -1
	for i := range classes {
		if isDefault(&classes[i]) && (found < 0 || precedes(&classes[i], &classes[found])) {
			found = i
		}
	}
	return found
}

func isDefault(c *storagev1.StorageClass) bool {
	return c.Annotations[defaultAnnotation] == "true" || c.Annotations[olderDefaultAnnotation] == "true"
}

func precedes(c, other *storagev1.StorageClass) bool {
	if c.CreationTimestamp.Equal(&other.CreationTimestamp) {
		return c.Name < other.Name
	}
	return c.CreationTimestamp.After(other.CreationTimestamp.Time)
}

func storageClassWarnings(_ context.Context, c, _ *storagev1.StorageClass) []string {
	var out []string
	for i, term := range c.AllowedTopologies {
		path := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions")
		for j, expression := range term.MatchLabelExpressions {
			if warning := podspec.NodeLabelWarning(expression.Key); warning != "" {
				out = append(out, fmt.Sprintf("%s: %s", path.Index(j).Child("key"), warning))
			}
		}
	}
	return out
}

func validateStorageClass(_ context.Context, c *check.Checker, class *storagev1.StorageClass) {
	validateProvisioner(c, class.Provisioner, field.NewPath("provisioner"))
	validateParameters(c, class.Parameters, field.NewPath("parameters"))
	validateReclaimPolicy(c, class.ReclaimPolicy, field.NewPath("reclaimPolicy"))
	validateBindingMode(c, class.VolumeBindingMode, field.NewPath("volumeBindingMode"))
	validateTopologies(c, class.AllowedTopologies, field.NewPath("allowedTopologies"))
}

// validateStorageClassUpdate forbids changes of the fields that volumes were provisioned from.
func validateStorageClassUpdate(ctx context.Context, c *check.Checker, class, old *storagev1.StorageClass) {
	validateStorageClass(ctx, c, class)
	c.Declared().Immutable(field.NewPath("parameters"), class.Parameters, old.Parameters)
	c.Declared().Immutable(field.NewPath("provisioner"), class.Provisioner, old.Provisioner)
	c.Declared().Immutable(field.NewPath("reclaimPolicy"), class.ReclaimPolicy, old.ReclaimPolicy)
	c.Declared().Immutable(field.NewPath("volumeBindingMode"), class.VolumeBindingMode, old.VolumeBindingMode)
}

func validateReclaimPolicy(c *check.Checker, policy *corev1.PersistentVolumeReclaimPolicy, path *field.Path) {
	if ptr.Deref(policy, "") != "" {
		check.OneOf(c, path, *policy, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
}

func validateBindingMode(c *check.Checker, mode *storagev1.VolumeBindingMode, path *field.Path) {
	if mode == nil {
		c.Required(path, "")
		return
	}
	check.OneOf(c, path, *mode, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)
}

// topology is the meaning of a term: a set of values for each label.
type topology map[string]sets.Set[string]

func validateTopologies(c *check.Checker, terms []corev1.TopologySelectorTerm, path *field.Path) {
	var seen []topology
	for i, term := range terms {
		at := path.Index(i).Child("matchLabelExpressions")
		labels := validateTopology(c, term, at)
		isEqual := func(other topology) bool { return equality.Semantic.DeepEqual(labels, other) }
		// A term without labels counts as a repetition too.
		if len(labels) == 0 || slices.ContainsFunc(seen, isEqual) {
			c.Duplicate(at, "")
		}
		seen = append(seen, labels)
	}
}

func validateTopology(c *check.Checker, term corev1.TopologySelectorTerm, path *field.Path) topology {
	labels := topology{}
	for i, expression := range term.MatchLabelExpressions {
		key, values := path.Index(i).Child("key"), path.Index(i).Child("values")
		if len(expression.Values) == 0 {
			c.Required(values, "")
		}
		set := sets.New[string]()
		for j, value := range expression.Values {
			check.Unique(c, values.Index(j), set, value)
		}
		c.LabelName(key, expression.Key)
		if _, twice := labels[expression.Key]; twice {
			c.Duplicate(key, expression.Key)
		}
		labels[expression.Key] = set
	}
	return labels
}
