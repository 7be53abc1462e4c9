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
func ValidatePersistentVolumeSpec(spec *v1.PersistentVolumeSpec, name string, path *field.Path) field.ErrorList {
	c := &checker{}
	c.capacity(spec.Capacity, path.Child("capacity"))
	if spec.PersistentVolumeReclaimPolicy != "" {
		check.OneOf(c, path.Child("persistentVolumeReclaimPolicy"), spec.PersistentVolumeReclaimPolicy,
			v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRecycle, v1.PersistentVolumeReclaimRetain)
	}
	c.volumeAffinity(spec.NodeAffinity, path.Child("nodeAffinity"))
	if spec.StorageClassName != "" {
		c.DNSSubdomain(path.Child("storageClassName"), spec.StorageClassName)
	}
	check.OptionalOneOf(c, path.Child("volumeMode"), spec.VolumeMode, v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)
	c.anyVolume(spec, name, path)
	c.attributesClass(spec, path)
	return c.Errors()
}

// ValidateInlineVolumeSpec checks a volume that is described where it is
// attached, without being an object of its own: it belongs to no claim.
func ValidateInlineVolumeSpec(spec *v1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	c := &checker{}
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
	c.anyVolume(spec, "", path)
	return c.Errors()
}

// anyVolume is what holds for all volumes.
func (c *checker) anyVolume(spec *v1.PersistentVolumeSpec, name string, fieldPath *field.Path) {
	modes := fieldPath.Child("accessModes")
	if len(spec.AccessModes) == 0 {
		c.Required(modes, "")
	}
	c.modes(spec.AccessModes, modes)
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

// attributesClass (KEP-3751) is a matter of CSI drivers.
func (c *checker) attributesClass(spec *v1.PersistentVolumeSpec, path *field.Path) {
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

// capacity is an amount of storage, and of nothing else.
func (c *checker) capacity(capacity v1.ResourceList, path *field.Path) {
	if len(capacity) == 0 {
		c.Required(path, "")
	}
	if _, found := capacity[v1.ResourceStorage]; !found || len(capacity) > 1 {
		c.Add(field.NotSupported(path, capacity, []v1.ResourceName{v1.ResourceStorage}))
	}
	for _, name := range names(capacity) {
		at, quantity := path.Key(string(name)), capacity[name]
		c.Add(ValidateAmount(quantity, at)...)
		if quantity.Sign() <= 0 {
			c.Invalid(at, quantity.String(), "must be greater than zero")
		}
	}
}

func (c *checker) volumeAffinity(affinity *v1.VolumeNodeAffinity, path *field.Path) {
	switch at := path.Child("required"); {
	case affinity == nil:
	case affinity.Required == nil:
		c.Required(at, "must specify required node constraints")
	default:
		c.Add(ValidateNodeSelector(affinity.Required, at)...)
	}
}

// persistentTypes are all sources, in the order in which the first one counts.
var persistentTypes = []sourceType[v1.PersistentVolumeSource]{
	typeOf("hostPath", func(s *v1.PersistentVolumeSource) *v1.HostPathVolumeSource { return s.HostPath }, (*checker).hostPath),
	typeOf("gcePersistentDisk", func(s *v1.PersistentVolumeSource) *v1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, (*checker).gceDisk).under("persistentDisk"),
	typeOf("awsElasticBlockStore", func(s *v1.PersistentVolumeSource) *v1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, (*checker).awsDisk),
	typeOf("glusterfs", func(s *v1.PersistentVolumeSource) *v1.GlusterfsPersistentVolumeSource { return s.Glusterfs }, (*checker).persistentGlusterfs),
	typeOf("flocker", func(s *v1.PersistentVolumeSource) *v1.FlockerVolumeSource { return s.Flocker }, (*checker).flocker),
	typeOf("nfs", func(s *v1.PersistentVolumeSource) *v1.NFSVolumeSource { return s.NFS }, (*checker).nfs),
	typeOf("rbd", func(s *v1.PersistentVolumeSource) *v1.RBDPersistentVolumeSource { return s.RBD }, (*checker).persistentRBD),
	typeOf("quobyte", func(s *v1.PersistentVolumeSource) *v1.QuobyteVolumeSource { return s.Quobyte }, (*checker).quobyte),
	typeOf("cephFS", func(s *v1.PersistentVolumeSource) *v1.CephFSPersistentVolumeSource { return s.CephFS }, (*checker).persistentCephFS).under("cephfs"),
	typeOf("iscsi", func(s *v1.PersistentVolumeSource) *v1.ISCSIPersistentVolumeSource { return s.ISCSI }, (*checker).persistentISCSI),
	typeOf("cinder", func(s *v1.PersistentVolumeSource) *v1.CinderPersistentVolumeSource { return s.Cinder }, (*checker).persistentCinder),
	typeOf("fc", func(s *v1.PersistentVolumeSource) *v1.FCVolumeSource { return s.FC }, (*checker).fibreChannel),
	besideOthers(typeOf("flexVolume", func(s *v1.PersistentVolumeSource) *v1.FlexPersistentVolumeSource { return s.FlexVolume }, (*checker).persistentFlex)),
	typeOf("azureFile", func(s *v1.PersistentVolumeSource) *v1.AzureFilePersistentVolumeSource { return s.AzureFile }, (*checker).persistentAzureFile),
	typeOf("vsphereVolume", func(s *v1.PersistentVolumeSource) *v1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, (*checker).vsphereVolume),
	typeOf("photonPersistentDisk", func(s *v1.PersistentVolumeSource) *v1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, (*checker).photonDisk),
	typeOf("portworxVolume", func(s *v1.PersistentVolumeSource) *v1.PortworxVolumeSource { return s.PortworxVolume }, (*checker).portworxVolume),
	typeOf("azureDisk", func(s *v1.PersistentVolumeSource) *v1.AzureDiskVolumeSource { return s.AzureDisk }, (*checker).azureDisk),
	typeOf("scaleIO", func(s *v1.PersistentVolumeSource) *v1.ScaleIOPersistentVolumeSource { return s.ScaleIO }, (*checker).persistentScaleIO),
	typeOf("local", func(s *v1.PersistentVolumeSource) *v1.LocalVolumeSource { return s.Local }, (*checker).local),
	typeOf("storageos", func(s *v1.PersistentVolumeSource) *v1.StorageOSPersistentVolumeSource { return s.StorageOS }, (*checker).persistentStorageOS),
	typeOf("csi", func(s *v1.PersistentVolumeSource) *v1.CSIPersistentVolumeSource { return s.CSI }, (*checker).persistentCSI),
}

func besideOthers[S any](t sourceType[S]) sourceType[S] {
	t.beside = true
	return t
}

func (c *checker) local(local *v1.LocalVolumeSource, path *field.Path) {
	if c.NonEmpty(path.Child("path"), local.Path) {
		c.noBacksteps(path.Child("path"), local.Path)
	}
}
