// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"math"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// VolumeAttachment is the wish to have a volume at a node, and what the driver
// says about it.
var VolumeAttachment = generic.Kind[*storagev1.VolumeAttachment]{
	Name: "VolumeAttachment", Plural: "volumeattachments", ClusterScoped: true,
	Metadata:   generic.Metadata{ValidateAsNew: true},
	New:        func() *storagev1.VolumeAttachment { return &storagev1.VolumeAttachment{} },
	NewList:    func() runtime.Object { return &storagev1.VolumeAttachmentList{} },
	Spec:       func(a *storagev1.VolumeAttachment) any { return &a.Spec },
	Status:     func(a *storagev1.VolumeAttachment) any { return &a.Status },
	Generation: generic.NoGeneration,
	StatusUpdate: generic.Update[*storagev1.VolumeAttachment]{
		Prepare: func(_ context.Context, a, old *storagev1.VolumeAttachment) {
			metav1.ResetObjectMetaForStatus(&a.ObjectMeta, &old.ObjectMeta)
		},
		Resets:   []string{"metadata"},
		Validate: validateVolumeAttachmentStatus,
	},
	Validate:               validateVolumeAttachment,
	ValidateUpdate:         validateVolumeAttachmentUpdate,
	RequireResourceVersion: true,
	Deletion:               generic.Deletion[*storagev1.VolumeAttachment]{ReturnObject: true},
	Columns: []generic.Column[*storagev1.VolumeAttachment]{
		{Name: "Attacher", Format: "name", Description: attachmentDoc["attacher"], Cell: func(a *storagev1.VolumeAttachment) any { return a.Spec.Attacher }},
		{Name: "PV", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"], Cell: func(a *storagev1.VolumeAttachment) any {
			return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
		}},
		{Name: "Node", Description: attachmentDoc["nodeName"], Cell: func(a *storagev1.VolumeAttachment) any { return a.Spec.NodeName }},
		{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"], Cell: func(a *storagev1.VolumeAttachment) any { return a.Status.Attached }},
	},
}

var attachmentDoc = storagev1.VolumeAttachmentSpec{}.SwaggerDoc()

func validateVolumeAttachment(_ context.Context, a *storagev1.VolumeAttachment) field.ErrorList {
	errs := validateAttacher(a.Spec.Attacher, specPath.Child("attacher"))
	errs = append(errs, validateSource(&a.Spec.Source, specPath.Child("source"))...)
	errs = append(errs, generic.Invalid(specPath.Child("nodeName"), a.Spec.NodeName, apivalidation.NameIsDNSSubdomain(a.Spec.NodeName, false))...)
	errs = append(errs, validateAttachmentStatus(&a.Status, field.NewPath("status"))...)
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		errs = append(errs, generic.Invalid(field.NewPath("spec.source.persistentVolumeName"), *name, apivalidation.NameIsDNSSubdomain(*name, false))...)
	}
	return errs
}

func validateVolumeAttachmentUpdate(ctx context.Context, a, old *storagev1.VolumeAttachment) field.ErrorList {
	return append(validateVolumeAttachment(ctx, a),
		apivalidation.ValidateImmutableField(a.Spec, old.Spec, specPath).WithOrigin("immutable").MarkCoveredByDeclarative()...)
}

// validateVolumeAttachmentStatus holds a write of the status to all that holds for
// the object, its metadata with it.
func validateVolumeAttachmentStatus(ctx context.Context, a, old *storagev1.VolumeAttachment) field.ErrorList {
	return append(validateVolumeAttachmentUpdate(ctx, a, old),
		apivalidation.ValidateObjectMetaAccessor(a, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
}

// validateAttacher: k8s.io/api declares all rules of this name.
func validateAttacher(name string, path *field.Path) field.ErrorList {
	errs := podspec.ValidateCSIDriverName(name, path)
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeTooLong:
			err.Origin = "maxLength"
		case field.ErrorTypeInvalid:
			err.Origin = "format=k8s-long-name-caseless"
		}
	}
	return errs.MarkCoveredByDeclarative()
}

func validateSource(source *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	inline, name := source.InlineVolumeSpec, source.PersistentVolumeName
	switch {
	case inline == nil && name == nil:
		return field.ErrorList{field.Required(path, exactlyOne)}
	case inline != nil && name != nil:
		return field.ErrorList{field.Forbidden(path, exactlyOne)}
	case inline != nil:
		return podspec.ValidateInlineVolumeSpec(inline, path.Child("inlineVolumeSpec"))
	case *name == "":
		return field.ErrorList{field.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")}
	}
	return nil
}

func validateAttachmentStatus(status *storagev1.VolumeAttachmentStatus, path *field.Path) field.ErrorList {
	const mostBytes = 256 * 1024
	size := 0
	for key, value := range status.AttachmentMetadata {
		size += len(key) + len(value)
	}
	var errs field.ErrorList
	if size > mostBytes {
		errs = append(errs, field.TooLong(path.Child("attachmentMetadata"), "", mostBytes))
	}
	errs = append(errs, validateVolumeError(status.AttachError, path.Child("attachError"))...)
	return append(errs, validateVolumeError(status.DetachError, path.Child("detachError"))...)
}

func validateVolumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	const longest = 1024
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > longest {
		errs = append(errs, field.TooLong(path.Child("message"), "", longest))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(path.Child("errorCode"), *e.ErrorCode, utilvalidation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}
