// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func (c *specChecker) allVolumes(path *field.Path) {
	for i := range c.spec.Volumes {
		volume, at := &c.spec.Volumes[i], path.Index(i)
		valid := c.Passes(func() {
			c.volume(volume, at)
			if c.NonEmpty(at.Child("name"), volume.Name) {
				c.DNSLabel(at.Child("name"), volume.Name)
			}
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

// notOwnClaim: a claim that is made for one of the pod's ephemeral volumes is
// not another volume's to use.
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

// sourceType is one of the sources that a volume can have; S is the struct of
// which one field is set: of a pod's volume, or of a PersistentVolume.
type sourceType[S any] struct {
	name string
	// path is what errors inside the source are reported under.
	path string
	// beside says that the source is let stand beside one before it.
	beside bool
	isSet  func(*S) bool
	rule   func(*check.Checker, *S, *field.Path)
}

func typeOf[S, T any](name string, source func(*S) *T, rule func(*check.Checker, *T, *field.Path)) sourceType[S] {
	return sourceType[S]{
		name:  name,
		path:  name,
		isSet: func(s *S) bool { return source(s) != nil },
		rule:  func(c *check.Checker, s *S, path *field.Path) { rule(c, source(s), path) },
	}
}

func (t sourceType[S]) under(path string) sourceType[S] {
	t.path = path
	return t
}

// oneSource checks that one source is set, and a good one. It returns its name.
func oneSource[S any](c *check.Checker, types []sourceType[S], source *S, path *field.Path) string {
	found := ""
	for i := range types {
		t := &types[i]
		if !t.isSet(source) {
			continue
		}
		if found != "" && !t.beside {
			c.Forbidden(path.Child(t.name), "may not specify more than 1 volume type")
			continue
		}
		found = t.name
		t.rule(c, source, path.Child(t.path))
	}
	if found == "" {
		c.Required(path, "must specify a volume type")
	}
	return found
}

// volumeTypes are all sources, in the order in which the first one counts.
var volumeTypes = []sourceType[v1.VolumeSource]{
	typeOf("emptyDir", func(s *v1.VolumeSource) *v1.EmptyDirVolumeSource { return s.EmptyDir }, validateEmptyDir),
	typeOf("hostPath", func(s *v1.VolumeSource) *v1.HostPathVolumeSource { return s.HostPath }, validateHostPath),
	typeOf("gitRepo", func(s *v1.VolumeSource) *v1.GitRepoVolumeSource { return s.GitRepo }, validateGitRepo),
	typeOf("gcePersistentDisk", func(s *v1.VolumeSource) *v1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, validateGceDisk).under("persistentDisk"),
	typeOf("awsElasticBlockStore", func(s *v1.VolumeSource) *v1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, validateAwsDisk),
	typeOf("secret", func(s *v1.VolumeSource) *v1.SecretVolumeSource { return s.Secret }, validateSecret),
	typeOf("nfs", func(s *v1.VolumeSource) *v1.NFSVolumeSource { return s.NFS }, validateNfs),
	typeOf("iscsi", func(s *v1.VolumeSource) *v1.ISCSIVolumeSource { return s.ISCSI }, validateIscsi),
	typeOf("glusterfs", func(s *v1.VolumeSource) *v1.GlusterfsVolumeSource { return s.Glusterfs }, validateGlusterfs),
	typeOf("flocker", func(s *v1.VolumeSource) *v1.FlockerVolumeSource { return s.Flocker }, validateFlocker),
	typeOf("persistentVolumeClaim", func(s *v1.VolumeSource) *v1.PersistentVolumeClaimVolumeSource { return s.PersistentVolumeClaim }, validateClaim),
	typeOf("rbd", func(s *v1.VolumeSource) *v1.RBDVolumeSource { return s.RBD }, validateRbd),
	typeOf("cinder", func(s *v1.VolumeSource) *v1.CinderVolumeSource { return s.Cinder }, validateCinder),
	typeOf("cephFS", func(s *v1.VolumeSource) *v1.CephFSVolumeSource { return s.CephFS }, validateCephFS).under("cephfs"),
	typeOf("quobyte", func(s *v1.VolumeSource) *v1.QuobyteVolumeSource { return s.Quobyte }, validateQuobyte),
	// "downwarAPI" is how upstream spells this one path.
	typeOf("downwarAPI", func(s *v1.VolumeSource) *v1.DownwardAPIVolumeSource { return s.DownwardAPI }, validateDownwardAPI).under("downwardAPI"),
	typeOf("fc", func(s *v1.VolumeSource) *v1.FCVolumeSource { return s.FC }, validateFibreChannel),
	typeOf("flexVolume", func(s *v1.VolumeSource) *v1.FlexVolumeSource { return s.FlexVolume }, validateFlexVolume),
	typeOf("configMap", func(s *v1.VolumeSource) *v1.ConfigMapVolumeSource { return s.ConfigMap }, validateConfigMap),
	typeOf("azureFile", func(s *v1.VolumeSource) *v1.AzureFileVolumeSource { return s.AzureFile }, validateAzureFile),
	typeOf("vsphereVolume", func(s *v1.VolumeSource) *v1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, validateVsphereVolume),
	typeOf("photonPersistentDisk", func(s *v1.VolumeSource) *v1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, validatePhotonDisk),
	typeOf("portworxVolume", func(s *v1.VolumeSource) *v1.PortworxVolumeSource { return s.PortworxVolume }, validatePortworxVolume),
	typeOf("azureDisk", func(s *v1.VolumeSource) *v1.AzureDiskVolumeSource { return s.AzureDisk }, validateAzureDisk),
	typeOf("storageos", func(s *v1.VolumeSource) *v1.StorageOSVolumeSource { return s.StorageOS }, validateStorageOS),
	typeOf("projected", func(s *v1.VolumeSource) *v1.ProjectedVolumeSource { return s.Projected }, validateProjected),
	typeOf("scaleIO", func(s *v1.VolumeSource) *v1.ScaleIOVolumeSource { return s.ScaleIO }, validateScaleIO),
	typeOf("csi", func(s *v1.VolumeSource) *v1.CSIVolumeSource { return s.CSI }, validateCsi),
	typeOf("ephemeral", func(s *v1.VolumeSource) *v1.EphemeralVolumeSource { return s.Ephemeral }, validateEphemeral),
	typeOf("image", func(s *v1.VolumeSource) *v1.ImageVolumeSource { return s.Image }, validateImage),
}

// volume checks that a volume has one source, and a good one.
func (c *specChecker) volume(volume *v1.Volume, path *field.Path) {
	if oneSource(c.Checker, volumeTypes, &volume.VolumeSource, path) == "ephemeral" {
		c.ephemeralName(volume, path)
	}
	if iscsi := volume.ISCSI; iscsi != nil && iscsi.InitiatorName != nil && len(volume.Name+":"+iscsi.TargetPortal) > maxISCSIName {
		c.Invalid(path.Child("name"), volume.Name, longISCSIName)
	}
}

const (
	maxISCSIName  = 64
	longISCSIName = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
)

// ephemeralName checks the name of the claim that will be made for the volume.
func (c *specChecker) ephemeralName(volume *v1.Volume, path *field.Path) {
	if c.meta == nil || c.meta.Name == "" || volume.Name == "" {
		return
	}
	claim := c.meta.Name + "-" + volume.Name
	for _, problem := range apivalidation.NameIsDNSSubdomain(claim, false) {
		c.Invalid(path.Child("name"), volume.Name, fmt.Sprintf("PVC name %q: %v", claim, problem))
	}
}

// The volumes of the node itself.

func validateEmptyDir(c *check.Checker, dir *v1.EmptyDirVolumeSource, path *field.Path) {
	if dir.SizeLimit != nil && dir.SizeLimit.Sign() < 0 {
		c.Forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
}

func validateHostPath(c *check.Checker, host *v1.HostPathVolumeSource, path *field.Path) {
	if !c.NonEmpty(path.Child("path"), host.Path) {
		return
	}
	c.NoBacksteps(path.Child("path"), host.Path)
	check.OptionalOneOf(c, path.Child("type"), host.Type,
		v1.HostPathUnset, v1.HostPathBlockDev, v1.HostPathCharDev, v1.HostPathDirectory,
		v1.HostPathDirectoryOrCreate, v1.HostPathFile, v1.HostPathFileOrCreate, v1.HostPathSocket)
}

func validateImage(c *check.Checker, image *v1.ImageVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("reference"), image.Reference)
	validatePullPolicy(c, image.PullPolicy, path.Child("pullPolicy"))
}

// The volumes of files that the API holds.

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
		// A volume belongs to no container, so it must say whose resources.
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
