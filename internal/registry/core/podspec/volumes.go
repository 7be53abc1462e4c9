// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/volumespec"
)

func (c *specChecker) allVolumes(path *field.Path) {
	for i := range c.spec.Volumes {
		volume, at := &c.spec.Volumes[i], path.Index(i)
		valid := c.Passes(func() {
			c.volume(volume, at)
			c.RequiredDNSLabel(at.Child("name"), volume.Name)
			if c.volumes[volume.Name] != nil {
				c.Duplicate(at.Child("name"), volume.Name)
			}
		})
		if valid {
			c.volumes[volume.Name] = &volume.VolumeSource
		}
		c.notOwnClaim(volume, at)
	}
}

// notOwnClaim forbids a reference to the claim that will be created for one of the pod's ephemeral
// volumes.
func (c *specChecker) notOwnClaim(volume *v1.Volume, path *field.Path) {
	if volume.PersistentVolumeClaim == nil || c.meta == nil || c.meta.Name == "" {
		return
	}
	name := volume.PersistentVolumeClaim.ClaimName
	for _, other := range c.spec.Volumes {
		if other.Ephemeral != nil && name == c.meta.Name+"-"+other.Name {
			c.Invalid(path.Child("persistentVolumeClaim", "claimName"), name, "must not reference a PVC that gets created for an ephemeral volume")
			return
		}
	}
}

// volumeTypes lists all sources. If several are set, the first in this order counts.
var volumeTypes = []volumespec.Source[v1.VolumeSource]{
	volumespec.SourceOf("emptyDir", func(s *v1.VolumeSource) *v1.EmptyDirVolumeSource { return s.EmptyDir }, validateEmptyDir),
	volumespec.SourceOf("hostPath", func(s *v1.VolumeSource) *v1.HostPathVolumeSource { return s.HostPath }, volumespec.ValidateHostPath),
	volumespec.SourceOf("gitRepo", func(s *v1.VolumeSource) *v1.GitRepoVolumeSource { return s.GitRepo }, validateGitRepo),
	volumespec.SourceOf("gcePersistentDisk", func(s *v1.VolumeSource) *v1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, volumespec.ValidateGCEDisk).Under("persistentDisk"),
	volumespec.SourceOf("awsElasticBlockStore", func(s *v1.VolumeSource) *v1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, volumespec.ValidateAWSDisk),
	volumespec.SourceOf("secret", func(s *v1.VolumeSource) *v1.SecretVolumeSource { return s.Secret }, validateSecret),
	volumespec.SourceOf("nfs", func(s *v1.VolumeSource) *v1.NFSVolumeSource { return s.NFS }, volumespec.ValidateNFS),
	volumespec.SourceOf("iscsi", func(s *v1.VolumeSource) *v1.ISCSIVolumeSource { return s.ISCSI }, volumespec.ValidateISCSI),
	volumespec.SourceOf("glusterfs", func(s *v1.VolumeSource) *v1.GlusterfsVolumeSource { return s.Glusterfs }, volumespec.ValidateGlusterfs),
	volumespec.SourceOf("flocker", func(s *v1.VolumeSource) *v1.FlockerVolumeSource { return s.Flocker }, volumespec.ValidateFlocker),
	volumespec.SourceOf("persistentVolumeClaim", func(s *v1.VolumeSource) *v1.PersistentVolumeClaimVolumeSource { return s.PersistentVolumeClaim }, validateClaim),
	volumespec.SourceOf("rbd", func(s *v1.VolumeSource) *v1.RBDVolumeSource { return s.RBD }, volumespec.ValidateRBD),
	volumespec.SourceOf("cinder", func(s *v1.VolumeSource) *v1.CinderVolumeSource { return s.Cinder }, volumespec.ValidateCinder),
	volumespec.SourceOf("cephFS", func(s *v1.VolumeSource) *v1.CephFSVolumeSource { return s.CephFS }, volumespec.ValidateCephFS).Under("cephfs"),
	volumespec.SourceOf("quobyte", func(s *v1.VolumeSource) *v1.QuobyteVolumeSource { return s.Quobyte }, volumespec.ValidateQuobyte),
	// "downwarAPI" is how upstream spells this one path.
	volumespec.SourceOf("downwarAPI", func(s *v1.VolumeSource) *v1.DownwardAPIVolumeSource { return s.DownwardAPI }, validateDownwardAPI).Under("downwardAPI"),
	volumespec.SourceOf("fc", func(s *v1.VolumeSource) *v1.FCVolumeSource { return s.FC }, volumespec.ValidateFibreChannel),
	volumespec.SourceOf("flexVolume", func(s *v1.VolumeSource) *v1.FlexVolumeSource { return s.FlexVolume }, volumespec.ValidateFlexVolume),
	volumespec.SourceOf("configMap", func(s *v1.VolumeSource) *v1.ConfigMapVolumeSource { return s.ConfigMap }, validateConfigMap),
	volumespec.SourceOf("azureFile", func(s *v1.VolumeSource) *v1.AzureFileVolumeSource { return s.AzureFile }, volumespec.ValidateAzureFile),
	volumespec.SourceOf("vsphereVolume", func(s *v1.VolumeSource) *v1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, volumespec.ValidateVsphereVolume),
	volumespec.SourceOf("photonPersistentDisk", func(s *v1.VolumeSource) *v1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, volumespec.ValidatePhotonDisk),
	volumespec.SourceOf("portworxVolume", func(s *v1.VolumeSource) *v1.PortworxVolumeSource { return s.PortworxVolume }, volumespec.ValidatePortworxVolume),
	volumespec.SourceOf("azureDisk", func(s *v1.VolumeSource) *v1.AzureDiskVolumeSource { return s.AzureDisk }, volumespec.ValidateAzureDisk),
	volumespec.SourceOf("storageos", func(s *v1.VolumeSource) *v1.StorageOSVolumeSource { return s.StorageOS }, volumespec.ValidateStorageOS),
	volumespec.SourceOf("projected", func(s *v1.VolumeSource) *v1.ProjectedVolumeSource { return s.Projected }, validateProjected),
	volumespec.SourceOf("scaleIO", func(s *v1.VolumeSource) *v1.ScaleIOVolumeSource { return s.ScaleIO }, volumespec.ValidateScaleIO),
	volumespec.SourceOf("csi", func(s *v1.VolumeSource) *v1.CSIVolumeSource { return s.CSI }, volumespec.ValidateCSI),
	volumespec.SourceOf("ephemeral", func(s *v1.VolumeSource) *v1.EphemeralVolumeSource { return s.Ephemeral }, validateEphemeral),
	volumespec.SourceOf("image", func(s *v1.VolumeSource) *v1.ImageVolumeSource { return s.Image }, validateImage),
}

// volume requires exactly one valid source.
func (c *specChecker) volume(volume *v1.Volume, path *field.Path) {
	if volumespec.OneSource(c.Checker, volumeTypes, &volume.VolumeSource, path) == "ephemeral" {
		c.ephemeralName(volume, path)
	}
	if iscsi := volume.ISCSI; iscsi != nil && iscsi.InitiatorName != nil && len(volume.Name+":"+iscsi.TargetPortal) > volumespec.MaxISCSIName {
		c.Invalid(path.Child("name"), volume.Name, volumespec.LongISCSIName)
	}
}

// ephemeralName checks the name of the claim that will be created for the volume.
func (c *specChecker) ephemeralName(volume *v1.Volume, path *field.Path) {
	if c.meta == nil || c.meta.Name == "" || volume.Name == "" {
		return
	}
	claim := c.meta.Name + "-" + volume.Name
	for _, problem := range apivalidation.NameIsDNSSubdomain(claim, false) {
		c.Invalid(path.Child("name"), volume.Name, fmt.Sprintf("PVC name %q: %v", claim, problem))
	}
}

// Volumes of the node itself.

func validateEmptyDir(c *check.Checker, dir *v1.EmptyDirVolumeSource, path *field.Path) {
	if dir.SizeLimit != nil && dir.SizeLimit.Sign() < 0 {
		c.Forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
}

func validateImage(c *check.Checker, image *v1.ImageVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("reference"), image.Reference)
	validatePullPolicy(c, image.PullPolicy, path.Child("pullPolicy"))
}

// Volumes of files from API objects.

func validateSecret(c *check.Checker, secret *v1.SecretVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("secretName"), secret.SecretName)
	validateFileMode(c, secret.DefaultMode, path.Child("defaultMode"))
	validateItems(c, secret.Items, path.Child("items"))
}

func validateConfigMap(c *check.Checker, configMap *v1.ConfigMapVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("name"), configMap.Name)
	validateFileMode(c, configMap.DefaultMode, path.Child("defaultMode"))
	validateItems(c, configMap.Items, path.Child("items"))
}

func validateItems(c *check.Checker, items []v1.KeyToPath, path *field.Path) {
	for i, item := range items {
		at := path.Index(i)
		c.NonEmpty(at.Child("key"), item.Key)
		c.NonEmpty(at.Child("path"), item.Path)
		validateOwnPath(c, at.Child("path"), item.Path)
		validateFileMode(c, item.Mode, at.Child("mode"))
	}
}

func validateDownwardAPI(c *check.Checker, source *v1.DownwardAPIVolumeSource, path *field.Path) {
	validateFileMode(c, source.DefaultMode, path.Child("defaultMode"))
	for i := range source.Items {
		validateDownwardFile(c, &source.Items[i], path)
	}
}

func validateDownwardFile(c *check.Checker, file *v1.DownwardAPIVolumeFile, path *field.Path) {
	c.NonEmpty(path.Child("path"), file.Path)
	validateOwnPath(c, path.Child("path"), file.Path)
	switch ref := file.ResourceFieldRef; {
	case file.FieldRef != nil:
		validateFieldRef(c, file.FieldRef, fileFields, path.Child("fieldRef"))
		if ref != nil {
			c.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case ref == nil:
		c.Required(path, "one of fieldRef and resourceFieldRef is required")
	case ref.ContainerName == "":
		// A volume belongs to no container, so it must name the container of the resources.
		c.Required(path.Child("resourceFieldRef", "containerName"), "")
		validateDivisor(c, ref, path.Child("resourceFieldRef", "divisor"))
	default:
		validateResourceFieldRef(c, ref, path.Child("resourceFieldRef"))
	}
	validateFileMode(c, file.Mode, path.Child("mode"))
}

func validateFileMode(c *check.Checker, mode *int32, path *field.Path) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func validateGitRepo(c *check.Checker, repo *v1.GitRepoVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("repository"), repo.Repository)
	c.RelativePath(path.Child("directory"), repo.Directory)
}
