// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumespec

import (
	"fmt"
	"maps"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/nodeselector"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
)

// ValidatePersistentVolumeSpec checks the spec of the volume with the given name.
func ValidatePersistentVolumeSpec(c *check.Checker, spec *v1.PersistentVolumeSpec, name string, path *field.Path) {
	validateCapacity(c, spec.Capacity, path.Child("capacity"))
	if spec.PersistentVolumeReclaimPolicy != "" {
		check.OneOf(c, path.Child("persistentVolumeReclaimPolicy"), spec.PersistentVolumeReclaimPolicy,
			v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRecycle, v1.PersistentVolumeReclaimRetain)
	}
	validateVolumeAffinity(c, spec.NodeAffinity, path.Child("nodeAffinity"))
	c.DNSSubdomainOrEmpty(path.Child("storageClassName"), spec.StorageClassName)
	check.OptionalOneOf(c, path.Child("volumeMode"), spec.VolumeMode, v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)
	validatePersistentVolume(c, spec, name, path)
	validateAttributesClass(c, spec, path)
}

// ValidateInlineVolumeSpec checks a volume that a VolumeAttachment describes inline. It has no
// claim.
func ValidateInlineVolumeSpec(c *check.Checker, spec *v1.PersistentVolumeSpec, path *field.Path) {
	const inline = "may not be specified in the context of inline volumes"
	if spec.ClaimRef != nil {
		c.Forbidden(path.Child("claimRef"), inline)
	}
	if len(spec.Capacity) > 0 {
		c.Forbidden(path.Child("capacity"), inline)
	}
	if spec.CSI == nil {
		c.Required(path.Child("csi"), "has to be specified in the context of inline volumes")
	}
	if policy := spec.PersistentVolumeReclaimPolicy; policy != "" && policy != v1.PersistentVolumeReclaimRetain {
		c.Forbidden(path.Child("persistentVolumeReclaimPolicy"), fmt.Sprintf("may only be %s in the context of inline volumes", v1.PersistentVolumeReclaimRetain))
	}
	if spec.NodeAffinity != nil {
		c.Forbidden(path.Child("nodeAffinity"), inline)
	}
	if spec.StorageClassName != "" {
		c.Forbidden(path.Child("storageClassName"), inline)
	}
	if mode := spec.VolumeMode; mode != nil && *mode != v1.PersistentVolumeFilesystem {
		c.Forbidden(path.Child("volumeMode"), fmt.Sprintf("may not specify volumeMode other than %s in the context of inline volumes", v1.PersistentVolumeFilesystem))
	}
	validatePersistentVolume(c, spec, "", path)
}

// validatePersistentVolume checks the rules of all volumes, inline or not.
func validatePersistentVolume(c *check.Checker, spec *v1.PersistentVolumeSpec, name string, fieldPath *field.Path) {
	modes := fieldPath.Child("accessModes")
	if len(spec.AccessModes) == 0 {
		c.Required(modes, "")
	}
	validateModes(c, spec.AccessModes, modes)
	if OneSource(c, persistentTypes, &spec.PersistentVolumeSource, fieldPath) == "local" && spec.NodeAffinity == nil {
		c.Required(fieldPath.Child("nodeAffinity"), "Local volume requires node affinity")
	}
	if iscsi := spec.ISCSI; iscsi != nil && iscsi.InitiatorName != nil && len(name+":"+iscsi.TargetPortal) > MaxISCSIName {
		c.Invalid(fieldPath.Child("iscsi", "targetportal"), iscsi.TargetPortal, LongISCSIName)
	}
	if host := spec.HostPath; host != nil && path.Clean(host.Path) == "/" && spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRecycle {
		c.Forbidden(fieldPath.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
}

// validateAttributesClass checks the VolumeAttributesClass (KEP-3751), which only CSI drivers
// support.
func validateAttributesClass(c *check.Checker, spec *v1.PersistentVolumeSpec, path *field.Path) {
	class := spec.VolumeAttributesClassName
	if class == nil {
		return
	}
	at := path.Child("volumeAttributesClassName")
	if *class == "" {
		c.Required(at, "an empty string is disallowed")
	} else {
		c.DNSSubdomain(at, *class)
	}
	if spec.CSI == nil {
		c.Required(path.Child("csi"), "has to be specified when using volumeAttributesClassName")
	}
}

// validateCapacity requires an amount of storage and nothing else.
func validateCapacity(c *check.Checker, capacity v1.ResourceList, path *field.Path) {
	if len(capacity) == 0 {
		c.Required(path, "")
	}
	if _, found := capacity[v1.ResourceStorage]; !found || len(capacity) > 1 {
		c.Add(field.NotSupported(path, capacity, []v1.ResourceName{v1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		at, quantity := path.Key(string(name)), capacity[name]
		resourcename.ValidateAmount(c, quantity, at)
		if quantity.Sign() <= 0 {
			c.Invalid(at, quantity.String(), "must be greater than zero")
		}
	}
}

func validateVolumeAffinity(c *check.Checker, affinity *v1.VolumeNodeAffinity, path *field.Path) {
	switch at := path.Child("required"); {
	case affinity == nil:
	case affinity.Required == nil:
		c.Required(at, "must specify required node constraints")
	default:
		nodeselector.Validate(c, affinity.Required, at)
	}
}

// persistentTypes lists all sources. If several are set, the first in this order counts.
var persistentTypes = []Source[v1.PersistentVolumeSource]{
	SourceOf("hostPath", func(s *v1.PersistentVolumeSource) *v1.HostPathVolumeSource { return s.HostPath }, ValidateHostPath),
	SourceOf("gcePersistentDisk", func(s *v1.PersistentVolumeSource) *v1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, ValidateGCEDisk).Under("persistentDisk"),
	SourceOf("awsElasticBlockStore", func(s *v1.PersistentVolumeSource) *v1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, ValidateAWSDisk),
	SourceOf("glusterfs", func(s *v1.PersistentVolumeSource) *v1.GlusterfsPersistentVolumeSource { return s.Glusterfs }, validatePersistentGlusterfs),
	SourceOf("flocker", func(s *v1.PersistentVolumeSource) *v1.FlockerVolumeSource { return s.Flocker }, ValidateFlocker),
	SourceOf("nfs", func(s *v1.PersistentVolumeSource) *v1.NFSVolumeSource { return s.NFS }, ValidateNFS),
	SourceOf("rbd", func(s *v1.PersistentVolumeSource) *v1.RBDPersistentVolumeSource { return s.RBD }, validatePersistentRBD),
	SourceOf("quobyte", func(s *v1.PersistentVolumeSource) *v1.QuobyteVolumeSource { return s.Quobyte }, ValidateQuobyte),
	SourceOf("cephFS", func(s *v1.PersistentVolumeSource) *v1.CephFSPersistentVolumeSource { return s.CephFS }, validatePersistentCephFS).Under("cephfs"),
	SourceOf("iscsi", func(s *v1.PersistentVolumeSource) *v1.ISCSIPersistentVolumeSource { return s.ISCSI }, validatePersistentISCSI),
	SourceOf("cinder", func(s *v1.PersistentVolumeSource) *v1.CinderPersistentVolumeSource { return s.Cinder }, validatePersistentCinder),
	SourceOf("fc", func(s *v1.PersistentVolumeSource) *v1.FCVolumeSource { return s.FC }, ValidateFibreChannel),
	besideOthers(SourceOf("flexVolume", func(s *v1.PersistentVolumeSource) *v1.FlexPersistentVolumeSource { return s.FlexVolume }, validatePersistentFlex)),
	SourceOf("azureFile", func(s *v1.PersistentVolumeSource) *v1.AzureFilePersistentVolumeSource { return s.AzureFile }, validatePersistentAzureFile),
	SourceOf("vsphereVolume", func(s *v1.PersistentVolumeSource) *v1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, ValidateVsphereVolume),
	SourceOf("photonPersistentDisk", func(s *v1.PersistentVolumeSource) *v1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, ValidatePhotonDisk),
	SourceOf("portworxVolume", func(s *v1.PersistentVolumeSource) *v1.PortworxVolumeSource { return s.PortworxVolume }, ValidatePortworxVolume),
	SourceOf("azureDisk", func(s *v1.PersistentVolumeSource) *v1.AzureDiskVolumeSource { return s.AzureDisk }, ValidateAzureDisk),
	SourceOf("scaleIO", func(s *v1.PersistentVolumeSource) *v1.ScaleIOPersistentVolumeSource { return s.ScaleIO }, validatePersistentScaleIO),
	SourceOf("local", func(s *v1.PersistentVolumeSource) *v1.LocalVolumeSource { return s.Local }, validateLocal),
	SourceOf("storageos", func(s *v1.PersistentVolumeSource) *v1.StorageOSPersistentVolumeSource { return s.StorageOS }, validatePersistentStorageOS),
	SourceOf("csi", func(s *v1.PersistentVolumeSource) *v1.CSIPersistentVolumeSource { return s.CSI }, validatePersistentCSI),
}

func besideOthers[S any](t Source[S]) Source[S] {
	t.beside = true
	return t
}

func validateLocal(c *check.Checker, local *v1.LocalVolumeSource, path *field.Path) {
	if c.NonEmpty(path.Child("path"), local.Path) {
		c.NoBacksteps(path.Child("path"), local.Path)
	}
}
