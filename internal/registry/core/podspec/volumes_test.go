// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestVolumes(t *testing.T) {
	createCases{
		"no source": {
			change: withVolume(v1.VolumeSource{}),
			want:   []string{`spec.volumes[0]: Required value: must specify a volume type`},
		},
		"two sources": {
			change: withVolume(v1.VolumeSource{
				EmptyDir: &v1.EmptyDirVolumeSource{}, ConfigMap: &v1.ConfigMapVolumeSource{}, DownwardAPI: &v1.DownwardAPIVolumeSource{},
			}),
			want: []string{
				`spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type`,
				`spec.volumes[0].configMap: Forbidden: may not specify more than 1 volume type`,
			},
		},
		"names": {
			change: spec(func(spec *v1.PodSpec) {
				source := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
				spec.Volumes = []v1.Volume{{Name: "a", VolumeSource: source}, {Name: "a", VolumeSource: source}, {Name: "A", VolumeSource: source}, {VolumeSource: source}}
			}),
			want: []string{
				`spec.volumes[1].name: Duplicate value: "a"`,
				`spec.volumes[2].name: Invalid value: "A": ` + label,
				`spec.volumes[3].name: Required value`,
			},
		},
		"emptyDir with a negative limit": {
			change: withVolume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("-1"))}}),
			want:   []string{`spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity`},
		},
		"files": {
			change: withVolume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{
				DefaultMode: new(int32(0o1000)),
				Items:       []v1.KeyToPath{{Key: "k", Path: "/abs"}, {Key: "k", Path: "..data"}, {Path: "a/../b", Mode: new(int32(-1))}},
			}}),
			want: []string{
				`spec.volumes[0].secret.secretName: Required value`,
				`spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive`,
				`spec.volumes[0].secret.items[0].path: Invalid value: "/abs": must be a relative path`,
				`spec.volumes[0].secret.items[1].path: Invalid value: "..data": must not start with '..'`,
				`spec.volumes[0].secret.items[2].key: Required value`,
				`spec.volumes[0].secret.items[2].path: Invalid value: "a/../b": must not contain '..'`,
				`spec.volumes[0].secret.items[2].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive`,
			},
		},
		"downward API": {
			change: withVolume(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels"}},
				{Path: "ip", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}},
				{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}},
				{Path: "none"},
			}}}),
			want: []string{
				`spec.volumes[0].downwardAPI.fieldRef.fieldPath: Unsupported value: "status.podIP": supported values: "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"`,
				`spec.volumes[0].downwardAPI.resourceFieldRef.containerName: Required value`,
				`spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required`,
			},
		},
		"image": {
			change: withVolume(v1.VolumeSource{Image: &v1.ImageVolumeSource{}}),
			want: []string{
				`spec.volumes[0].image.reference: Required value`,
				`spec.volumes[0].image.pullPolicy: Required value`,
			},
		},
	}.run(t)
}

func TestProjectedVolumes(t *testing.T) {
	projected := func(sources ...v1.VolumeProjection) func(*v1.Pod) {
		return withVolume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}})
	}
	const path = "spec.volumes[0].projected"
	createCases{
		"duplicate path": {
			change: projected(
				v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Items: []v1.KeyToPath{{Key: "k", Path: "f"}}}},
				v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: []v1.KeyToPath{{Key: "k", Path: "f"}}}},
			),
			want: []string{path + `: Invalid value: "c": conflicting duplicate paths`},
		},
		"two types in one source": {
			change: projected(v1.VolumeProjection{Secret: &v1.SecretProjection{}, ConfigMap: &v1.ConfigMapProjection{}}),
			want: []string{
				path + `.sources[0].secret.name: Required value`,
				path + `.sources[0].configMap.name: Required value`,
				path + `.sources[0]: Forbidden: may not specify more than 1 volume type per source`,
			},
		},
		"tokens": {
			change: projected(
				v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}},
				v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(599))}},
				v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "../token"}},
			),
			want: []string{
				path + `.sources[1].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`,
				path + `.path: Required value`,
				path + `.sources[2].serviceAccountToken.expirationSeconds: Required value`,
				path + `.path: Invalid value: "../token": must not contain '..'`,
			},
		},
		"trust bundles": {
			change: projected(
				v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("example.com:signer:roots"), Path: "a"}},
				v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("example.com/signer:roots"), Path: "b"}},
				v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{SignerName: new("example"), Path: "c"}},
				v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "a"}},
			),
			want: []string{
				path + `.sources[1].clusterTrustBundle.name: Invalid value: "example.com/signer:roots": not a valid clustertrustbundlename: ClusterTrustBundle for signerName example.com/signer must be named with prefix example.com:signer:`,
				path + `.sources[2].clusterTrustBundle.signerName: Invalid value: "example": must be a fully qualified domain and path of the form 'example.com/signer-name'`,
				path + `.sources[3].clusterTrustBundle: Required value: either name or signerName must be specified`,
				path + `: Invalid value: "a": conflicting duplicate paths`,
			},
		},
		"certificates": {
			change: projected(
				v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{SignerName: "example.com/a", KeyType: "ED25519", KeyPath: "key", MaxExpirationSeconds: new(int32(3600))}},
				v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{SignerName: "kubernetes.io/a", KeyType: "DSA", MaxExpirationSeconds: new(int32(86401))}},
			),
			want: []string{
				path + `.sources[1].podCertificate.keyType: Unsupported value: "DSA": supported values: "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"`,
				path + `.sources[1].podCertificate.maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400`,
				path + `.sources[1].podCertificate: Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath`,
			},
		},
	}.run(t)
}

// TestNetworkVolumes checks the rules for volumes of external storage that only pods have.
func TestNetworkVolumes(t *testing.T) {
	const path = "spec.volumes[0]."
	for name, test := range map[string]struct {
		source v1.VolumeSource
		want   []string
	}{
		"iscsi, a long name": {v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: strings.Repeat("p", 64), IQN: "iqn.2015-02.example.com:test", InitiatorName: new("abc")}}, []string{
			`iscsi.initiatorname: Invalid value: "abc": must be valid format starting with iqn, eui, or naa`,
			`name: Invalid value: "data": Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.`,
		}},
		"git":   {v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{Directory: "/a"}}, []string{`gitRepo.repository: Required value`, `gitRepo.directory: Invalid value: "/a": must be a relative path`}},
		"claim": {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, []string{`persistentVolumeClaim.claimName: Required value`}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := validPod()
			withVolume(test.source)(pod)
			var want []string
			for _, err := range test.want {
				want = append(want, path+err)
			}
			checktest.Diff(t, want, check.Run(func(c *check.Checker) { ValidatePodCreate(c, pod) }))
		})
	}
}

// TestSharedVolumeTypes checks that each source that PersistentVolumes have as well is checked, and
// at which path.
func TestSharedVolumeTypes(t *testing.T) {
	for path, source := range map[string]v1.VolumeSource{
		"hostPath.path":                 {HostPath: &v1.HostPathVolumeSource{}},
		"nfs.server":                    {NFS: &v1.NFSVolumeSource{}},
		"iscsi.targetPortal":            {ISCSI: &v1.ISCSIVolumeSource{}},
		"persistentDisk.pdName":         {GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{}},
		"awsElasticBlockStore.volumeID": {AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{}},
		"glusterfs.endpoints":           {Glusterfs: &v1.GlusterfsVolumeSource{}},
		"flocker":                       {Flocker: &v1.FlockerVolumeSource{}},
		"rbd.monitors":                  {RBD: &v1.RBDVolumeSource{}},
		"cinder.volumeID":               {Cinder: &v1.CinderVolumeSource{}},
		"cephfs.monitors":               {CephFS: &v1.CephFSVolumeSource{}},
		"quobyte.registry":              {Quobyte: &v1.QuobyteVolumeSource{}},
		"fc.targetWWNs":                 {FC: &v1.FCVolumeSource{}},
		"flexVolume.driver":             {FlexVolume: &v1.FlexVolumeSource{}},
		"azureFile.secretName":          {AzureFile: &v1.AzureFileVolumeSource{}},
		"azureDisk.diskName":            {AzureDisk: &v1.AzureDiskVolumeSource{}},
		"vsphereVolume.volumePath":      {VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{}},
		"photonPersistentDisk.pdID":     {PhotonPersistentDisk: &v1.PhotonPersistentDiskVolumeSource{}},
		"portworxVolume.volumeID":       {PortworxVolume: &v1.PortworxVolumeSource{}},
		"storageos.volumeName":          {StorageOS: &v1.StorageOSVolumeSource{}},
		"scaleIO.gateway":               {ScaleIO: &v1.ScaleIOVolumeSource{}},
		"csi.driver":                    {CSI: &v1.CSIVolumeSource{}},
	} {
		t.Run(path, func(t *testing.T) {
			pod := validPod()
			withVolume(source)(pod)
			errs := check.Run(func(c *check.Checker) { ValidatePodCreate(c, pod) })
			if len(errs) == 0 || errs[0].Type != field.ErrorTypeRequired || errs[0].Field != "spec.volumes[0]."+path {
				t.Errorf("got %v, want %s to be required", errs, path)
			}
		})
	}
}

func TestEphemeralVolumes(t *testing.T) {
	template := &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
	}}
	createCases{
		"valid": {change: withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: template}})},
		"no template": {
			change: withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}),
			want:   []string{`spec.volumes[0].ephemeral.volumeClaimTemplate: Required value`},
		},
		"template with a name": {
			change: func(pod *v1.Pod) {
				named := template.DeepCopy()
				named.Name = "mine"
				withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: named}})(pod)
			},
			want: []string{`spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set`},
		},
		"claim of an ephemeral volume in another volume": {
			change: func(pod *v1.Pod) {
				withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: template}})(pod)
				pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "other", VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"},
				}})
			},
			want: []string{`spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "web-data": must not reference a PVC that gets created for an ephemeral volume`},
		},
	}.run(t)
}

func TestMounts(t *testing.T) {
	data := withVolume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	mounts := func(mounts ...v1.VolumeMount) func(*v1.Pod) {
		return func(pod *v1.Pod) { data(pod); pod.Spec.Containers[0].VolumeMounts = mounts }
	}
	const path = "spec.containers[0].volumeMounts"
	createCases{
		"valid": {change: mounts(v1.VolumeMount{Name: "data", MountPath: "/a", SubPath: "x", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)})},
		"bad": {
			change: mounts(
				v1.VolumeMount{Name: "none", MountPath: "/a"},
				v1.VolumeMount{Name: "data", MountPath: "/a", SubPath: "/x", SubPathExpr: "../y"},
				v1.VolumeMount{},
			),
			want: []string{
				path + `[0].name: Not found: "none"`,
				path + `[1].mountPath: Invalid value: "/a": must be unique`,
				path + `.subPath: Invalid value: "/x": must be a relative path`,
				path + `[1].subPathExpr: Invalid value: "../y": subPathExpr and subPath are mutually exclusive`,
				path + `.subPathExpr: Invalid value: "../y": must not contain '..'`,
				path + `[2].name: Required value`,
				path + `[2].name: Not found: ""`,
				path + `[2].mountPath: Required value`,
			},
		},
		"propagation": {
			change: mounts(
				v1.VolumeMount{Name: "data", MountPath: "/a", MountPropagation: new(v1.MountPropagationBidirectional), RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)},
				v1.VolumeMount{Name: "data", MountPath: "/b", MountPropagation: new(v1.MountPropagationMode("Up")), RecursiveReadOnly: new(v1.RecursiveReadOnlyMode("Deep"))},
			),
			want: []string{
				path + `.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers`,
				path + `.recursiveReadOnly: Forbidden: may only be specified when readOnly is true`,
				path + `.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified`,
				path + `.mountPropagation: Unsupported value: "Up": supported values: "Bidirectional", "HostToContainer", "None"`,
				path + `.recursiveReadOnly: Unsupported value: "Deep": supported values: "Disabled", "Enabled", "IfPossible"`,
			},
		},
		"device of an emptyDir that is also mounted": {
			change: func(pod *v1.Pod) {
				mounts(v1.VolumeMount{Name: "data", MountPath: "/a"})(pod)
				pod.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "data", DevicePath: "/a"}, {Name: "none", DevicePath: "/../b"}}
			},
			want: []string{
				path + `[0].name: Invalid value: "data": must not already exist in volumeDevices`,
				path + `[0].mountPath: Invalid value: "/a": must not already exist as a path in volumeDevices`,
				`spec.containers[0].volumeDevices[0].name: Invalid value: "data": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode`,
				`spec.containers[0].volumeDevices[0].name: Invalid value: "data": must not already exist in volumeMounts`,
				`spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/a": must not already exist as a path in volumeMounts`,
				`spec.containers[0].volumeDevices[1].name: Not found: "none"`,
				`spec.containers[0].volumeDevices[1].devicePath: Invalid value: "/../b": can not contain backsteps ('..')`,
			},
		},
	}.run(t)
}
