// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The sources that a PersistentVolume describes otherwise than a pod's volume:
// a volume has no namespace, so it must say where its secrets are.

func (c *checker) secretIn(name, namespace string, path *field.Path) {
	c.needAll(path.Child("secretRef"), "name", name, "namespace", namespace)
}

func (c *checker) persistentGlusterfs(gluster *v1.GlusterfsPersistentVolumeSource, path *field.Path) {
	c.needAll(path, "endpoints", gluster.EndpointsName, "path", gluster.Path)
	namespace, at := gluster.EndpointsNamespace, path.Child("endpointsNamespace")
	switch {
	case namespace == nil:
	case *namespace == "":
		c.Invalid(at, *namespace, "if the endpointnamespace is set, it must be a valid namespace name")
	default:
		c.Invalid(at, *namespace, apivalidation.ValidateNamespaceName(*namespace, false)...)
	}
}

func (c *checker) persistentRBD(rbd *v1.RBDPersistentVolumeSource, path *field.Path) {
	c.monitors(rbd.CephMonitors, path)
	c.NonEmpty(path.Child("image"), rbd.RBDImage)
}

func (c *checker) persistentCephFS(ceph *v1.CephFSPersistentVolumeSource, path *field.Path) {
	c.monitors(ceph.Monitors, path)
}

func (c *checker) persistentISCSI(iscsi *v1.ISCSIPersistentVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("targetPortal"), iscsi.TargetPortal)
	if c.NonEmpty(path.Child("iqn"), iscsi.IQN) {
		c.persistentInitiator(iscsi.IQN, path.Child("iqn"))
	}
	c.lun(iscsi.Lun, path)
	switch {
	case iscsi.SecretRef != nil:
		c.NonEmpty(path.Child("secretRef").Child("name"), iscsi.SecretRef.Name)
	case iscsi.DiscoveryCHAPAuth || iscsi.SessionCHAPAuth:
		c.Required(path.Child("secretRef"), "")
	}
	if iscsi.InitiatorName != nil {
		c.persistentInitiator(*iscsi.InitiatorName, path.Child("initiatorname"))
	}
}

func (c *checker) persistentInitiator(name string, path *field.Path) {
	if format, known := initiatorNames[name[:min(3, len(name))]]; !known || !format.MatchString(name) {
		c.Invalid(path, name, "must be valid format")
	}
}

func (c *checker) persistentCinder(cinder *v1.CinderPersistentVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("volumeID"), cinder.VolumeID)
	if ref := cinder.SecretRef; ref != nil {
		c.secretIn(ref.Name, ref.Namespace, path)
	}
}

func (c *checker) persistentFlex(flex *v1.FlexPersistentVolumeSource, path *field.Path) {
	c.flexDriver(flex.Driver, flex.Options, path)
}

func (c *checker) persistentAzureFile(azure *v1.AzureFilePersistentVolumeSource, path *field.Path) {
	c.needAll(path, "secretName", azure.SecretName, "shareName", azure.ShareName)
	if azure.SecretNamespace != nil {
		c.NonEmpty(path.Child("secretNamespace"), *azure.SecretNamespace)
	}
}

func (c *checker) persistentScaleIO(scaleIO *v1.ScaleIOPersistentVolumeSource, path *field.Path) {
	c.needAll(path, "gateway", scaleIO.Gateway, "system", scaleIO.System, "volumeName", scaleIO.VolumeName)
}

func (c *checker) persistentStorageOS(storageOS *v1.StorageOSPersistentVolumeSource, path *field.Path) {
	c.storageOSNames(storageOS.VolumeName, storageOS.VolumeNamespace, path)
	if ref := storageOS.SecretRef; ref != nil {
		c.secretIn(ref.Name, ref.Namespace, path)
	}
}

func (c *checker) persistentCSI(csi *v1.CSIPersistentVolumeSource, path *field.Path) {
	c.DriverName(path.Child("driver"), csi.Driver)
	c.NonEmpty(path.Child("volumeHandle"), csi.VolumeHandle)
	c.csiSecret(csi.ControllerPublishSecretRef, path.Child("controllerPublishSecretRef"))
	c.csiSecret(csi.ControllerExpandSecretRef, path.Child("controllerExpandSecretRef"))
	c.csiSecret(csi.NodePublishSecretRef, path.Child("nodePublishSecretRef"))
	c.csiSecret(csi.NodeExpandSecretRef, path.Child("nodeExpandSecretRef"))
}

func (c *checker) csiSecret(ref *v1.SecretReference, path *field.Path) {
	if ref == nil {
		return
	}
	if c.NonEmpty(path.Child("name"), ref.Name) {
		c.DNSSubdomain(path.Child("name"), ref.Name)
	}
	if c.NonEmpty(path.Child("namespace"), ref.Namespace) {
		c.DNSLabel(path.Child("namespace"), ref.Namespace)
	}
}
