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

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/volumespec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// VolumeAttachment requests that a volume be attached to a node, and holds the driver's answer.
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

func validateVolumeAttachment(_ context.Context, c *check.Checker, a *storagev1.VolumeAttachment) {
	c.Declared().DriverName(specPath.Child("attacher"), a.Spec.Attacher)
	validateSource(c, &a.Spec.Source, specPath.Child("source"))
	c.DNSSubdomain(specPath.Child("nodeName"), a.Spec.NodeName)
	validateAttachmentStatus(c, &a.Status, field.NewPath("status"))
	c.OptionalDNSSubdomain(field.NewPath("spec.source.persistentVolumeName"), a.Spec.Source.PersistentVolumeName)
}

func validateVolumeAttachmentUpdate(ctx context.Context, c *check.Checker, a, old *storagev1.VolumeAttachment) {
	validateVolumeAttachment(ctx, c, a)
	c.Declared().Immutable(specPath, a.Spec, old.Spec)
}

// validateVolumeAttachmentStatus checks the whole object, with its metadata.
func validateVolumeAttachmentStatus(ctx context.Context, c *check.Checker, a, old *storagev1.VolumeAttachment) {
	validateVolumeAttachmentUpdate(ctx, c, a, old)
	c.Add(apivalidation.ValidateObjectMetaAccessor(a, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
}

func validateSource(c *check.Checker, source *storagev1.VolumeAttachmentSource, path *field.Path) {
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	inline, name := source.InlineVolumeSpec, source.PersistentVolumeName
	switch {
	case inline == nil && name == nil:
		c.Required(path, exactlyOne)
	case inline != nil && name != nil:
		c.Forbidden(path, exactlyOne)
	case inline != nil:
		volumespec.ValidateInlineVolumeSpec(c, inline, path.Child("inlineVolumeSpec"))
	case *name == "":
		c.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")
	}
}

func validateAttachmentStatus(c *check.Checker, status *storagev1.VolumeAttachmentStatus, path *field.Path) {
	const mostBytes = 256 * 1024
	size := 0
	for key, value := range status.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > mostBytes {
		c.TooLong(path.Child("attachmentMetadata"), mostBytes)
	}
	validateVolumeError(c, status.AttachError, path.Child("attachError"))
	validateVolumeError(c, status.DetachError, path.Child("detachError"))
}

func validateVolumeError(c *check.Checker, e *storagev1.VolumeError, path *field.Path) {
	const longest = 1024
	if e == nil {
		return
	}
	c.MaxBytes(path.Child("message"), e.Message, longest)
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		c.Invalid(path.Child("errorCode"), *e.ErrorCode, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
	}
}
