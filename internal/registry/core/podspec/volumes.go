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
		before := len(c.Errors())
		c.volume(volume, at)
		if c.NonEmpty(at.Child("name"), volume.Name) {
			c.DNSLabel(at.Child("name"), volume.Name)
		}
		if c.volumes[volume.Name] != nil {
			c.Duplicate(at.Child("name"), volume.Name)
		}
		if len(c.Errors()) == before {
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
	check  func(*checker, *S, *field.Path)
}

func typeOf[S, T any](name string, source func(*S) *T, check func(*checker, *T, *field.Path)) sourceType[S] {
	return sourceType[S]{
		name:  name,
		path:  name,
		isSet: func(s *S) bool { return source(s) != nil },
		check: func(c *checker, s *S, path *field.Path) { check(c, source(s), path) },
	}
}

func (t sourceType[S]) under(path string) sourceType[S] {
	t.path = path
	return t
}

// oneSource checks that one source is set, and a good one. It returns its name.
func oneSource[S any](c *checker, types []sourceType[S], source *S, path *field.Path) string {
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
		t.check(c, source, path.Child(t.path))
	}
	if found == "" {
		c.Required(path, "must specify a volume type")
	}
	return found
}

// volumeTypes are all sources, in the order in which the first one counts.
var volumeTypes = []sourceType[v1.VolumeSource]{
	typeOf("emptyDir", func(s *v1.VolumeSource) *v1.EmptyDirVolumeSource { return s.EmptyDir }, (*checker).emptyDir),
	typeOf("hostPath", func(s *v1.VolumeSource) *v1.HostPathVolumeSource { return s.HostPath }, (*checker).hostPath),
	typeOf("gitRepo", func(s *v1.VolumeSource) *v1.GitRepoVolumeSource { return s.GitRepo }, (*checker).gitRepo),
	typeOf("gcePersistentDisk", func(s *v1.VolumeSource) *v1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, (*checker).gceDisk).under("persistentDisk"),
	typeOf("awsElasticBlockStore", func(s *v1.VolumeSource) *v1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, (*checker).awsDisk),
	typeOf("secret", func(s *v1.VolumeSource) *v1.SecretVolumeSource { return s.Secret }, (*checker).secret),
	typeOf("nfs", func(s *v1.VolumeSource) *v1.NFSVolumeSource { return s.NFS }, (*checker).nfs),
	typeOf("iscsi", func(s *v1.VolumeSource) *v1.ISCSIVolumeSource { return s.ISCSI }, (*checker).iscsi),
	typeOf("glusterfs", func(s *v1.VolumeSource) *v1.GlusterfsVolumeSource { return s.Glusterfs }, (*checker).glusterfs),
	typeOf("flocker", func(s *v1.VolumeSource) *v1.FlockerVolumeSource { return s.Flocker }, (*checker).flocker),
	typeOf("persistentVolumeClaim", func(s *v1.VolumeSource) *v1.PersistentVolumeClaimVolumeSource { return s.PersistentVolumeClaim }, (*checker).claim),
	typeOf("rbd", func(s *v1.VolumeSource) *v1.RBDVolumeSource { return s.RBD }, (*checker).rbd),
	typeOf("cinder", func(s *v1.VolumeSource) *v1.CinderVolumeSource { return s.Cinder }, (*checker).cinder),
	typeOf("cephFS", func(s *v1.VolumeSource) *v1.CephFSVolumeSource { return s.CephFS }, (*checker).cephFS).under("cephfs"),
	typeOf("quobyte", func(s *v1.VolumeSource) *v1.QuobyteVolumeSource { return s.Quobyte }, (*checker).quobyte),
	// "downwarAPI" is how upstream spells this one path.
	typeOf("downwarAPI", func(s *v1.VolumeSource) *v1.DownwardAPIVolumeSource { return s.DownwardAPI }, (*checker).downwardAPI).under("downwardAPI"),
	typeOf("fc", func(s *v1.VolumeSource) *v1.FCVolumeSource { return s.FC }, (*checker).fibreChannel),
	typeOf("flexVolume", func(s *v1.VolumeSource) *v1.FlexVolumeSource { return s.FlexVolume }, (*checker).flexVolume),
	typeOf("configMap", func(s *v1.VolumeSource) *v1.ConfigMapVolumeSource { return s.ConfigMap }, (*checker).configMap),
	typeOf("azureFile", func(s *v1.VolumeSource) *v1.AzureFileVolumeSource { return s.AzureFile }, (*checker).azureFile),
	typeOf("vsphereVolume", func(s *v1.VolumeSource) *v1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, (*checker).vsphereVolume),
	typeOf("photonPersistentDisk", func(s *v1.VolumeSource) *v1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, (*checker).photonDisk),
	typeOf("portworxVolume", func(s *v1.VolumeSource) *v1.PortworxVolumeSource { return s.PortworxVolume }, (*checker).portworxVolume),
	typeOf("azureDisk", func(s *v1.VolumeSource) *v1.AzureDiskVolumeSource { return s.AzureDisk }, (*checker).azureDisk),
	typeOf("storageos", func(s *v1.VolumeSource) *v1.StorageOSVolumeSource { return s.StorageOS }, (*checker).storageOS),
	typeOf("projected", func(s *v1.VolumeSource) *v1.ProjectedVolumeSource { return s.Projected }, (*checker).projected),
	typeOf("scaleIO", func(s *v1.VolumeSource) *v1.ScaleIOVolumeSource { return s.ScaleIO }, (*checker).scaleIO),
	typeOf("csi", func(s *v1.VolumeSource) *v1.CSIVolumeSource { return s.CSI }, (*checker).csi),
	typeOf("ephemeral", func(s *v1.VolumeSource) *v1.EphemeralVolumeSource { return s.Ephemeral }, (*checker).ephemeral),
	typeOf("image", func(s *v1.VolumeSource) *v1.ImageVolumeSource { return s.Image }, (*checker).image),
}

// volume checks that a volume has one source, and a good one.
func (c *specChecker) volume(volume *v1.Volume, path *field.Path) {
	if oneSource(&c.checker, volumeTypes, &volume.VolumeSource, path) == "ephemeral" {
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

func (c *checker) emptyDir(dir *v1.EmptyDirVolumeSource, path *field.Path) {
	if dir.SizeLimit != nil && dir.SizeLimit.Sign() < 0 {
		c.Forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
}

func (c *checker) hostPath(host *v1.HostPathVolumeSource, path *field.Path) {
	if !c.NonEmpty(path.Child("path"), host.Path) {
		return
	}
	c.noBacksteps(path.Child("path"), host.Path)
	check.OptionalOneOf(c, path.Child("type"), host.Type,
		v1.HostPathUnset, v1.HostPathBlockDev, v1.HostPathCharDev, v1.HostPathDirectory,
		v1.HostPathDirectoryOrCreate, v1.HostPathFile, v1.HostPathFileOrCreate, v1.HostPathSocket)
}

func (c *checker) image(image *v1.ImageVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("reference"), image.Reference)
	c.pullPolicy(image.PullPolicy, path.Child("pullPolicy"))
}

// The volumes of files that the API holds.

func (c *checker) secret(secret *v1.SecretVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("secretName"), secret.SecretName)
	c.fileMode(secret.DefaultMode, path.Child("defaultMode"))
	c.items(secret.Items, path.Child("items"))
}

func (c *checker) configMap(configMap *v1.ConfigMapVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("name"), configMap.Name)
	c.fileMode(configMap.DefaultMode, path.Child("defaultMode"))
	c.items(configMap.Items, path.Child("items"))
}

func (c *checker) items(items []v1.KeyToPath, path *field.Path) {
	for i, item := range items {
		at := path.Index(i)
		c.NonEmpty(at.Child("key"), item.Key)
		c.NonEmpty(at.Child("path"), item.Path)
		c.ownPath(at.Child("path"), item.Path)
		c.fileMode(item.Mode, at.Child("mode"))
	}
}

func (c *checker) downwardAPI(source *v1.DownwardAPIVolumeSource, path *field.Path) {
	c.fileMode(source.DefaultMode, path.Child("defaultMode"))
	for i := range source.Items {
		c.downwardFile(&source.Items[i], path)
	}
}

func (c *checker) downwardFile(file *v1.DownwardAPIVolumeFile, path *field.Path) {
	c.NonEmpty(path.Child("path"), file.Path)
	c.ownPath(path.Child("path"), file.Path)
	switch ref := file.ResourceFieldRef; {
	case file.FieldRef != nil:
		c.fieldRef(file.FieldRef, fileFields, path.Child("fieldRef"))
		if ref != nil {
			c.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case ref == nil:
		c.Required(path, "one of fieldRef and resourceFieldRef is required")
	case ref.ContainerName == "":
		// A volume belongs to no container, so it must say whose resources.
		c.Required(path.Child("resourceFieldRef", "containerName"), "")
		c.divisor(ref, path.Child("resourceFieldRef", "divisor"))
	default:
		c.resourceFieldRef(ref, path.Child("resourceFieldRef"))
	}
	c.fileMode(file.Mode, path.Child("mode"))
}

func (c *checker) fileMode(mode *int32, path *field.Path) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}
