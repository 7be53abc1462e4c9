// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidatePersistentVolumeSpec checks the spec of a volume of that name.
func ValidatePersistentVolumeSpec(c *check.Checker, spec *v1.PersistentVolumeSpec, name string, path *field.Path) {
	validateCapacity(c, spec.Capacity, path.Child("capacity"))
	if spec.PersistentVolumeReclaimPolicy != "" {
		check.OneOf(c, path.Child("persistentVolumeReclaimPolicy"), spec.PersistentVolumeReclaimPolicy,
			v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRecycle, v1.PersistentVolumeReclaimRetain)
	}
	validateVolumeAffinity(c, spec.NodeAffinity, path.Child("nodeAffinity"))
	if spec.StorageClassName != "" {
		c.DNSSubdomain(path.Child("storageClassName"), spec.StorageClassName)
	}
	check.OptionalOneOf(c, path.Child("volumeMode"), spec.VolumeMode, v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)
	validatePersistentVolume(c, spec, name, path)
	validateAttributesClass(c, spec, path)
}

// ValidateInlineVolumeSpec checks a volume that is described where it is
// attached, without being an object of its own: it belongs to no claim.
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

// validatePersistentVolume is what holds for all volumes.
func validatePersistentVolume(c *check.Checker, spec *v1.PersistentVolumeSpec, name string, fieldPath *field.Path) {
	modes := fieldPath.Child("accessModes")
	if len(spec.AccessModes) == 0 {
		c.Required(modes, "")
	}
	validateModes(c, spec.AccessModes, modes)
	if oneSource(c, persistentTypes, &spec.PersistentVolumeSource, fieldPath) == "local" && spec.NodeAffinity == nil {
		c.Required(fieldPath.Child("nodeAffinity"), "Local volume requires node affinity")
	}
	if iscsi := spec.ISCSI; iscsi != nil && iscsi.InitiatorName != nil && len(name+":"+iscsi.TargetPortal) > maxISCSIName {
		c.Invalid(fieldPath.Child("iscsi", "targetportal"), iscsi.TargetPortal, longISCSIName)
	}
	if host := spec.HostPath; host != nil && path.Clean(host.Path) == "/" && spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRecycle {
		c.Forbidden(fieldPath.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
}

// validateAttributesClass (KEP-3751) is a matter of CSI drivers.
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

// validateCapacity is an amount of storage, and of nothing else.
func validateCapacity(c *check.Checker, capacity v1.ResourceList, path *field.Path) {
	if len(capacity) == 0 {
		c.Required(path, "")
	}
	if _, found := capacity[v1.ResourceStorage]; !found || len(capacity) > 1 {
		c.Add(field.NotSupported(path, capacity, []v1.ResourceName{v1.ResourceStorage}))
	}
	for _, name := range names(capacity) {
		at, quantity := path.Key(string(name)), capacity[name]
		ValidateAmount(c, quantity, at)
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
		ValidateNodeSelector(c, affinity.Required, at)
	}
}

// persistentTypes are all sources, in the order in which the first one counts.
var persistentTypes = []sourceType[v1.PersistentVolumeSource]{
	typeOf("hostPath", func(s *v1.PersistentVolumeSource) *v1.HostPathVolumeSource { return s.HostPath }, validateHostPath),
	typeOf("gcePersistentDisk", func(s *v1.PersistentVolumeSource) *v1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, validateGceDisk).under("persistentDisk"),
	typeOf("awsElasticBlockStore", func(s *v1.PersistentVolumeSource) *v1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, validateAwsDisk),
	typeOf("glusterfs", func(s *v1.PersistentVolumeSource) *v1.GlusterfsPersistentVolumeSource { return s.Glusterfs }, validatePersistentGlusterfs),
	typeOf("flocker", func(s *v1.PersistentVolumeSource) *v1.FlockerVolumeSource { return s.Flocker }, validateFlocker),
	typeOf("nfs", func(s *v1.PersistentVolumeSource) *v1.NFSVolumeSource { return s.NFS }, validateNfs),
	typeOf("rbd", func(s *v1.PersistentVolumeSource) *v1.RBDPersistentVolumeSource { return s.RBD }, validatePersistentRBD),
	typeOf("quobyte", func(s *v1.PersistentVolumeSource) *v1.QuobyteVolumeSource { return s.Quobyte }, validateQuobyte),
	typeOf("cephFS", func(s *v1.PersistentVolumeSource) *v1.CephFSPersistentVolumeSource { return s.CephFS }, validatePersistentCephFS).under("cephfs"),
	typeOf("iscsi", func(s *v1.PersistentVolumeSource) *v1.ISCSIPersistentVolumeSource { return s.ISCSI }, validatePersistentISCSI),
	typeOf("cinder", func(s *v1.PersistentVolumeSource) *v1.CinderPersistentVolumeSource { return s.Cinder }, validatePersistentCinder),
	typeOf("fc", func(s *v1.PersistentVolumeSource) *v1.FCVolumeSource { return s.FC }, validateFibreChannel),
	besideOthers(typeOf("flexVolume", func(s *v1.PersistentVolumeSource) *v1.FlexPersistentVolumeSource { return s.FlexVolume }, validatePersistentFlex)),
	typeOf("azureFile", func(s *v1.PersistentVolumeSource) *v1.AzureFilePersistentVolumeSource { return s.AzureFile }, validatePersistentAzureFile),
	typeOf("vsphereVolume", func(s *v1.PersistentVolumeSource) *v1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, validateVsphereVolume),
	typeOf("photonPersistentDisk", func(s *v1.PersistentVolumeSource) *v1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, validatePhotonDisk),
	typeOf("portworxVolume", func(s *v1.PersistentVolumeSource) *v1.PortworxVolumeSource { return s.PortworxVolume }, validatePortworxVolume),
	typeOf("azureDisk", func(s *v1.PersistentVolumeSource) *v1.AzureDiskVolumeSource { return s.AzureDisk }, validateAzureDisk),
	typeOf("scaleIO", func(s *v1.PersistentVolumeSource) *v1.ScaleIOPersistentVolumeSource { return s.ScaleIO }, validatePersistentScaleIO),
	typeOf("local", func(s *v1.PersistentVolumeSource) *v1.LocalVolumeSource { return s.Local }, validateLocal),
	typeOf("storageos", func(s *v1.PersistentVolumeSource) *v1.StorageOSPersistentVolumeSource { return s.StorageOS }, validatePersistentStorageOS),
	typeOf("csi", func(s *v1.PersistentVolumeSource) *v1.CSIPersistentVolumeSource { return s.CSI }, validatePersistentCSI),
}

func besideOthers[S any](t sourceType[S]) sourceType[S] {
	t.beside = true
	return t
}

func validateLocal(c *check.Checker, local *v1.LocalVolumeSource, path *field.Path) {
	if c.NonEmpty(path.Child("path"), local.Path) {
		c.NoBacksteps(path.Child("path"), local.Path)
	}
}
