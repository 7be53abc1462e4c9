// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// CSIDriver describes the properties of a driver that the cluster needs to use it.
var CSIDriver = generic.Kind[*storagev1.CSIDriver]{
	Name: "CSIDriver", Plural: "csidrivers", ClusterScoped: true,
	New:                    func() *storagev1.CSIDriver { return &storagev1.CSIDriver{} },
	NewList:                func() runtime.Object { return &storagev1.CSIDriverList{} },
	Prepare:                countChanges,
	Validate:               validateCSIDriver,
	ValidateUpdate:         validateCSIDriverUpdate,
	Warnings:               csiDriverWarnings,
	RequireResourceVersion: true,
	Deletion:               generic.Deletion[*storagev1.CSIDriver]{ReturnObject: true},
	Columns: []generic.Column[*storagev1.CSIDriver]{
		{Name: "AttachRequired", Type: "boolean", Description: csiDriverDoc["attachRequired"], Cell: func(d *storagev1.CSIDriver) any { return ptr.Deref(d.Spec.AttachRequired, true) }},
		{Name: "PodInfoOnMount", Type: "boolean", Description: csiDriverDoc["podInfoOnMount"], Cell: func(d *storagev1.CSIDriver) any { return ptr.Deref(d.Spec.PodInfoOnMount, false) }},
		{Name: "StorageCapacity", Type: "boolean", Description: csiDriverDoc["storageCapacity"], Cell: func(d *storagev1.CSIDriver) any { return ptr.Deref(d.Spec.StorageCapacity, false) }},
		{Name: "TokenRequests", Description: csiDriverDoc["tokenRequests"], Cell: audiencesText},
		{Name: "RequiresRepublish", Type: "boolean", Description: csiDriverDoc["requiresRepublish"], Cell: func(d *storagev1.CSIDriver) any { return ptr.Deref(d.Spec.RequiresRepublish, false) }},
		{Name: "Modes", Description: csiDriverDoc["volumeLifecycleModes"], Cell: modesText},
	},
}

var csiDriverDoc = storagev1.CSIDriverSpec{}.SwaggerDoc()

// SetDefaults_CSIDriver fills in properties that a driver does not set.
func SetDefaults_CSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	setDefault(&s.AttachRequired, true)
	setDefault(&s.PodInfoOnMount, false)
	setDefault(&s.StorageCapacity, false)
	setDefault(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	setDefault(&s.RequiresRepublish, false)
	setDefault(&s.SELinuxMount, false)
	setDefault(&s.PreventPodSchedulingIfMissing, false)
}

func setDefault[V any](field **V, value V) {
	if *field == nil {
		*field = &value
	}
}

// countChanges increments the generation on changes. Unlike other kinds, a CSIDriver does not start
// at 1.
func countChanges(_ context.Context, d, old *storagev1.CSIDriver) {
	if old != nil && !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
		d.Generation = old.Generation + 1
	}
}

func audiencesText(d *storagev1.CSIDriver) any {
	if d.Spec.TokenRequests == nil {
		return "<unset>"
	}
	var audiences []string
	for _, request := range d.Spec.TokenRequests {
		audiences = append(audiences, request.Audience)
	}
	return strings.Join(audiences, ",")
}

func modesText(d *storagev1.CSIDriver) any {
	var modes []string
	for _, mode := range d.Spec.VolumeLifecycleModes {
		modes = append(modes, string(mode))
	}
	return generic.OrNone(strings.Join(modes, ","))
}

func csiDriverWarnings(_ context.Context, d, old *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	if old != nil && equality.Semantic.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}

var specPath = field.NewPath("spec")

// attachPath is spelled as in upstream's errors; the field is attachRequired.
var attachPath = specPath.Child("attachedRequired")

func validateCSIDriver(_ context.Context, c *check.Checker, d *storagev1.CSIDriver) {
	s := &d.Spec
	requireSet(c, s.AttachRequired, attachPath)
	requireSet(c, s.PodInfoOnMount, specPath.Child("podInfoOnMount"))
	requireSet(c, s.StorageCapacity, specPath.Child("storageCapacity"))
	validateFSGroupPolicy(c, s.FSGroupPolicy, specPath.Child("fsGroupPolicy"))
	validateTokenRequests(c, s.TokenRequests, specPath.Child("tokenRequests"))
	validateModes(c, s.VolumeLifecycleModes, specPath.Child("volumeLifecycleModes"))
	requireSet(c, s.SELinuxMount, specPath.Child("seLinuxMount"))
	if period := s.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < 10 {
		c.Invalid(specPath.Child("nodeAllocatableUpdatePeriodSeconds"), *period, "must be greater than or equal to 10 seconds")
	}
	if s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0 {
		c.Invalid(specPath.Child("serviceAccountTokenInSecrets"), *s.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	}
	requireSet(c, s.PreventPodSchedulingIfMissing, specPath.Child("preventPodSchedulingIfMissing"))
}

func validateCSIDriverUpdate(ctx context.Context, c *check.Checker, d, old *storagev1.CSIDriver) {
	validateCSIDriver(ctx, c, d)
	c.Immutable(attachPath, d.Spec.AttachRequired, old.Spec.AttachRequired)
	c.Declared().Immutable(specPath.Child("volumeLifecycleModes"), d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)
}

func requireSet(c *check.Checker, value *bool, path *field.Path) {
	if value == nil {
		c.Required(path, "")
	}
}

func validateFSGroupPolicy(c *check.Checker, policy *storagev1.FSGroupPolicy, path *field.Path) {
	check.OptionalOneOf(c, path, policy,
		storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
}

func validateTokenRequests(c *check.Checker, requests []storagev1.TokenRequest, path *field.Path) {
	seen := sets.New[string]()
	for i, request := range requests {
		if seen.Has(request.Audience) {
			c.Duplicate(path.Index(i).Child("audience"), request.Audience)
			continue
		}
		seen.Insert(request.Audience)
		validateExpiration(c, request.ExpirationSeconds, path.Index(i).Child("expirationSeconds"))
	}
}

func validateExpiration(c *check.Checker, seconds *int64, path *field.Path) {
	switch {
	case seconds == nil:
	case *seconds < 600:
		c.Invalid(path, *seconds, "may not specify a duration less than 10 minutes")
	case *seconds > 1<<32:
		c.Invalid(path, *seconds, "may not specify a duration larger than 2^32 seconds")
	}
}

func validateModes(c *check.Checker, modes []storagev1.VolumeLifecycleMode, path *field.Path) {
	for _, mode := range modes {
		check.OneOf(c, path, mode, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	}
}
