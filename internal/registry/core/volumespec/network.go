// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumespec

import (
	"net"
	"path"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Volumes of external storage systems. Most have no in-tree driver any more, but they are still
// part of v1.

func validateSecretRef(c *check.Checker, ref *v1.LocalObjectReference, path *field.Path) {
	if ref != nil {
		c.NonEmpty(path.Child("secretRef").Child("name"), ref.Name)
	}
}

func validatePartition(c *check.Checker, number int32, path *field.Path) {
	if number < 0 || number > 255 {
		c.Invalid(path.Child("partition"), number, validation.InclusiveRangeError(1, 255))
	}
}

func validateLun(c *check.Checker, number int32, path *field.Path) {
	if number < 0 || number > 255 {
		c.Invalid(path.Child("lun"), number, validation.InclusiveRangeError(0, 255))
	}
}

func ValidateGCEDisk(c *check.Checker, disk *v1.GCEPersistentDiskVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("pdName"), disk.PDName)
	validatePartition(c, disk.Partition, path)
}

func ValidateAWSDisk(c *check.Checker, disk *v1.AWSElasticBlockStoreVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("volumeID"), disk.VolumeID)
	validatePartition(c, disk.Partition, path)
}

func ValidateNFS(c *check.Checker, nfs *v1.NFSVolumeSource, fieldPath *field.Path) {
	c.AllNonEmpty(fieldPath, "server", nfs.Server, "path", nfs.Path)
	if !path.IsAbs(nfs.Path) {
		c.Invalid(fieldPath.Child("path"), nfs.Path, "must be an absolute path")
	}
}

func ValidateISCSI(c *check.Checker, iscsi *v1.ISCSIVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("targetPortal"), iscsi.TargetPortal)
	if c.NonEmpty(path.Child("iqn"), iscsi.IQN) {
		validateInitiator(c, iscsi.IQN, path.Child("iqn"))
	}
	validateLun(c, iscsi.Lun, path)
	if (iscsi.DiscoveryCHAPAuth || iscsi.SessionCHAPAuth) && iscsi.SecretRef == nil {
		c.Required(path.Child("secretRef"), "")
	}
	if iscsi.InitiatorName != nil {
		validateInitiator(c, *iscsi.InitiatorName, path.Child("initiatorname"))
	}
}

// initiatorNames are the three formats of RFC 3720, section 3.2.6, and 3980.
var initiatorNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

func validateInitiator(c *check.Checker, name string, path *field.Path) {
	format, known := initiatorNames[name[:min(3, len(name))]]
	switch {
	case !known:
		c.Invalid(path, name, "must be valid format starting with iqn, eui, or naa")
	case !format.MatchString(name):
		c.Invalid(path, name, "must be valid format")
	}
}

func ValidateGlusterfs(c *check.Checker, gluster *v1.GlusterfsVolumeSource, path *field.Path) {
	c.AllNonEmpty(path, "endpoints", gluster.EndpointsName, "path", gluster.Path)
}

func ValidateFlocker(c *check.Checker, flocker *v1.FlockerVolumeSource, path *field.Path) {
	switch {
	case flocker.DatasetName == "" && flocker.DatasetUUID == "":
		c.Required(path, "one of datasetName and datasetUUID is required")
	case flocker.DatasetName != "" && flocker.DatasetUUID != "":
		c.Invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(flocker.DatasetName, "/") {
		c.Invalid(path.Child("datasetName"), flocker.DatasetName, "must not contain '/'")
	}
}

func ValidateRBD(c *check.Checker, rbd *v1.RBDVolumeSource, path *field.Path) {
	validateMonitors(c, rbd.CephMonitors, path)
	c.NonEmpty(path.Child("image"), rbd.RBDImage)
}

func ValidateCinder(c *check.Checker, cinder *v1.CinderVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("volumeID"), cinder.VolumeID)
	validateSecretRef(c, cinder.SecretRef, path)
}

func ValidateCephFS(c *check.Checker, ceph *v1.CephFSVolumeSource, path *field.Path) {
	validateMonitors(c, ceph.Monitors, path)
}

func validateMonitors(c *check.Checker, monitors []string, path *field.Path) {
	if len(monitors) == 0 {
		c.Required(path.Child("monitors"), "")
	}
}

func ValidateQuobyte(c *check.Checker, quobyte *v1.QuobyteVolumeSource, path *field.Path) {
	const registry = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case quobyte.Registry == "":
		c.Required(path.Child("registry"), registry)
	case len(quobyte.Tenant) > 64:
		c.Required(path.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(quobyte.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				c.Invalid(path.Child("registry"), quobyte.Registry, registry)
			}
		}
	}
	c.NonEmpty(path.Child("volume"), quobyte.Volume)
}

func ValidateFibreChannel(c *check.Checker, fc *v1.FCVolumeSource, path *field.Path) {
	switch {
	case len(fc.TargetWWNs) == 0 && len(fc.WWIDs) == 0:
		c.Required(path.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
	case len(fc.TargetWWNs) > 0 && len(fc.WWIDs) > 0:
		c.Invalid(path.Child("targetWWNs"), fc.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	switch {
	case len(fc.TargetWWNs) == 0:
	case fc.Lun == nil:
		c.Required(path.Child("lun"), "lun is required if targetWWNs is specified")
	default:
		validateLun(c, *fc.Lun, path)
	}
}

func ValidateFlexVolume(c *check.Checker, flex *v1.FlexVolumeSource, path *field.Path) {
	validateFlexDriver(c, flex.Driver, flex.Options, path)
}

func validateFlexDriver(c *check.Checker, driver string, options map[string]string, path *field.Path) {
	c.NonEmpty(path.Child("driver"), driver)
	for option := range options {
		domain, _, _ := strings.Cut(option, "/")
		if isReservedDomain(strings.ToLower(domain)) {
			c.Invalid(path.Child("options").Key(option), option, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

func isReservedDomain(domain string) bool {
	return strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasSuffix("."+domain, ".k8s.io")
}

func ValidateAzureFile(c *check.Checker, azure *v1.AzureFileVolumeSource, path *field.Path) {
	c.AllNonEmpty(path, "secretName", azure.SecretName, "shareName", azure.ShareName)
}

func ValidateAzureDisk(c *check.Checker, azure *v1.AzureDiskVolumeSource, path *field.Path) {
	c.AllNonEmpty(path, "diskName", azure.DiskName, "diskURI", azure.DataDiskURI)
	check.OptionalOneOf(c, path.Child("cachingMode"), azure.CachingMode,
		v1.AzureDataDiskCachingNone, v1.AzureDataDiskCachingReadOnly, v1.AzureDataDiskCachingReadWrite)
	check.OptionalOneOf(c, path.Child("kind"), azure.Kind, v1.AzureDedicatedBlobDisk, v1.AzureManagedDisk, v1.AzureSharedBlobDisk)
	if azure.Kind == nil {
		return
	}
	prefix, format := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *azure.Kind == v1.AzureManagedDisk {
		prefix, format = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(azure.DataDiskURI, prefix) {
		c.Add(field.NotSupported(path.Child("diskURI"), azure.DataDiskURI, []string{format}))
	}
}

func ValidateVsphereVolume(c *check.Checker, vsphere *v1.VsphereVirtualDiskVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("volumePath"), vsphere.VolumePath)
}

func ValidatePhotonDisk(c *check.Checker, photon *v1.PhotonPersistentDiskVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("pdID"), photon.PdID)
}

func ValidatePortworxVolume(c *check.Checker, portworx *v1.PortworxVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("volumeID"), portworx.VolumeID)
}

func ValidateStorageOS(c *check.Checker, storageOS *v1.StorageOSVolumeSource, path *field.Path) {
	validateStorageOSNames(c, storageOS.VolumeName, storageOS.VolumeNamespace, path)
	validateSecretRef(c, storageOS.SecretRef, path)
}

func validateStorageOSNames(c *check.Checker, volume, namespace string, path *field.Path) {
	c.RequiredDNSLabel(path.Child("volumeName"), volume)
	if namespace != "" {
		c.DNSLabel(path.Child("volumeNamespace"), namespace)
	}
}

func ValidateScaleIO(c *check.Checker, scaleIO *v1.ScaleIOVolumeSource, path *field.Path) {
	c.AllNonEmpty(path, "gateway", scaleIO.Gateway, "system", scaleIO.System, "volumeName", scaleIO.VolumeName)
}

func ValidateCSI(c *check.Checker, csi *v1.CSIVolumeSource, path *field.Path) {
	c.DriverName(path.Child("driver"), csi.Driver)
	if ref := csi.NodePublishSecretRef; ref != nil && c.NonEmpty(path.Child("nodePublishSecretRef").Child("name"), ref.Name) {
		c.DNSSubdomain(path.Child("name"), ref.Name)
	}
}
