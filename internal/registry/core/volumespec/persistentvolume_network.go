// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumespec

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Sources that differ from those of pods: a PersistentVolume has no namespace, so it names the
// namespaces of its secrets.

func validateSecretIn(c *check.Checker, name, namespace string, path *field.Path) {
	c.AllNonEmpty(path.Child("secretRef"), "name", name, "namespace", namespace)
}

func validatePersistentGlusterfs(c *check.Checker, gluster *v1.GlusterfsPersistentVolumeSource, path *field.Path) {
	c.AllNonEmpty(path, "endpoints", gluster.EndpointsName, "path", gluster.Path)
	namespace, at := gluster.EndpointsNamespace, path.Child("endpointsNamespace")
	switch {
	case namespace == nil:
	case *namespace == "":
		c.Invalid(at, *namespace, "if the endpointnamespace is set, it must be a valid namespace name")
	default:
		c.Invalid(at, *namespace, apivalidation.ValidateNamespaceName(*namespace, false)...)
	}
}

func validatePersistentRBD(c *check.Checker, rbd *v1.RBDPersistentVolumeSource, path *field.Path) {
	validateMonitors(c, rbd.CephMonitors, path)
	c.NonEmpty(path.Child("image"), rbd.RBDImage)
}

func validatePersistentCephFS(c *check.Checker, ceph *v1.CephFSPersistentVolumeSource, path *field.Path) {
	validateMonitors(c, ceph.Monitors, path)
}

func validatePersistentISCSI(c *check.Checker, iscsi *v1.ISCSIPersistentVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("targetPortal"), iscsi.TargetPortal)
	if c.NonEmpty(path.Child("iqn"), iscsi.IQN) {
		validatePersistentInitiator(c, iscsi.IQN, path.Child("iqn"))
	}
	validateLun(c, iscsi.Lun, path)
	switch {
	case iscsi.SecretRef != nil:
		c.NonEmpty(path.Child("secretRef").Child("name"), iscsi.SecretRef.Name)
	case iscsi.DiscoveryCHAPAuth || iscsi.SessionCHAPAuth:
		c.Required(path.Child("secretRef"), "")
	}
	if iscsi.InitiatorName != nil {
		validatePersistentInitiator(c, *iscsi.InitiatorName, path.Child("initiatorname"))
	}
}

func validatePersistentInitiator(c *check.Checker, name string, path *field.Path) {
	if format, known := initiatorNames[name[:min(3, len(name))]]; !known || !format.MatchString(name) {
		c.Invalid(path, name, "must be valid format")
	}
}

func validatePersistentCinder(c *check.Checker, cinder *v1.CinderPersistentVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("volumeID"), cinder.VolumeID)
	if ref := cinder.SecretRef; ref != nil {
		validateSecretIn(c, ref.Name, ref.Namespace, path)
	}
}

func validatePersistentFlex(c *check.Checker, flex *v1.FlexPersistentVolumeSource, path *field.Path) {
	validateFlexDriver(c, flex.Driver, flex.Options, path)
}

func validatePersistentAzureFile(c *check.Checker, azure *v1.AzureFilePersistentVolumeSource, path *field.Path) {
	c.AllNonEmpty(path, "secretName", azure.SecretName, "shareName", azure.ShareName)
	if azure.SecretNamespace != nil {
		c.NonEmpty(path.Child("secretNamespace"), *azure.SecretNamespace)
	}
}

func validatePersistentScaleIO(c *check.Checker, scaleIO *v1.ScaleIOPersistentVolumeSource, path *field.Path) {
	c.AllNonEmpty(path, "gateway", scaleIO.Gateway, "system", scaleIO.System, "volumeName", scaleIO.VolumeName)
}

func validatePersistentStorageOS(c *check.Checker, storageOS *v1.StorageOSPersistentVolumeSource, path *field.Path) {
	validateStorageOSNames(c, storageOS.VolumeName, storageOS.VolumeNamespace, path)
	if ref := storageOS.SecretRef; ref != nil {
		validateSecretIn(c, ref.Name, ref.Namespace, path)
	}
}

func validatePersistentCSI(c *check.Checker, csi *v1.CSIPersistentVolumeSource, path *field.Path) {
	c.DriverName(path.Child("driver"), csi.Driver)
	c.NonEmpty(path.Child("volumeHandle"), csi.VolumeHandle)
	validateCSISecret(c, csi.ControllerPublishSecretRef, path.Child("controllerPublishSecretRef"))
	validateCSISecret(c, csi.ControllerExpandSecretRef, path.Child("controllerExpandSecretRef"))
	validateCSISecret(c, csi.NodePublishSecretRef, path.Child("nodePublishSecretRef"))
	validateCSISecret(c, csi.NodeExpandSecretRef, path.Child("nodeExpandSecretRef"))
}

func validateCSISecret(c *check.Checker, ref *v1.SecretReference, path *field.Path) {
	if ref == nil {
		return
	}
	c.RequiredDNSSubdomain(path.Child("name"), ref.Name)
	c.RequiredDNSLabel(path.Child("namespace"), ref.Namespace)
}
