// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumespec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestSources(t *testing.T) {
	for name, test := range map[string]struct {
		rules func(c *check.Checker)
		want  []string
	}{
		"hostPath": {
			rules: func(c *check.Checker) {
				ValidateHostPath(c, &v1.HostPathVolumeSource{Path: "/a/../b", Type: new(v1.HostPathType("Pipe"))}, field.NewPath("hostPath"))
			},
			want: []string{
				`hostPath.path: Invalid value: "/a/../b": must not contain '..'`,
				`hostPath.type: Unsupported value: "Pipe": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"`,
			},
		},
		"nfs": {
			rules: func(c *check.Checker) { ValidateNFS(c, &v1.NFSVolumeSource{Path: "rel"}, field.NewPath("nfs")) },
			want:  []string{`nfs.server: Required value`, `nfs.path: Invalid value: "rel": must be an absolute path`},
		},
		"iscsi": {
			rules: func(c *check.Checker) {
				ValidateISCSI(c, &v1.ISCSIVolumeSource{TargetPortal: "p", IQN: "iqn.x", Lun: 256, SessionCHAPAuth: true}, field.NewPath("iscsi"))
			},
			want: []string{`iscsi.iqn: Invalid value: "iqn.x": must be valid format`, `iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive`, `iscsi.secretRef: Required value`},
		},
		"gce": {
			rules: func(c *check.Checker) {
				ValidateGCEDisk(c, &v1.GCEPersistentDiskVolumeSource{Partition: 256}, field.NewPath("persistentDisk"))
			},
			want: []string{`persistentDisk.pdName: Required value`, `persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive`},
		},
		"aws": {
			rules: func(c *check.Checker) {
				ValidateAWSDisk(c, &v1.AWSElasticBlockStoreVolumeSource{}, field.NewPath("awsElasticBlockStore"))
			},
			want: []string{`awsElasticBlockStore.volumeID: Required value`},
		},
		"glusterfs": {
			rules: func(c *check.Checker) { ValidateGlusterfs(c, &v1.GlusterfsVolumeSource{}, field.NewPath("glusterfs")) },
			want:  []string{`glusterfs.endpoints: Required value`, `glusterfs.path: Required value`},
		},
		"flocker": {
			rules: func(c *check.Checker) {
				ValidateFlocker(c, &v1.FlockerVolumeSource{DatasetName: "a/b"}, field.NewPath("flocker"))
			},
			want: []string{`flocker.datasetName: Invalid value: "a/b": must not contain '/'`},
		},
		"rbd": {
			rules: func(c *check.Checker) { ValidateRBD(c, &v1.RBDVolumeSource{}, field.NewPath("rbd")) },
			want:  []string{`rbd.monitors: Required value`, `rbd.image: Required value`},
		},
		"cinder": {
			rules: func(c *check.Checker) {
				ValidateCinder(c, &v1.CinderVolumeSource{SecretRef: &v1.LocalObjectReference{}}, field.NewPath("cinder"))
			},
			want: []string{`cinder.volumeID: Required value`, `cinder.secretRef.name: Required value`},
		},
		"cephfs": {
			rules: func(c *check.Checker) { ValidateCephFS(c, &v1.CephFSVolumeSource{}, field.NewPath("cephfs")) },
			want:  []string{`cephfs.monitors: Required value`},
		},
		"quobyte": {
			rules: func(c *check.Checker) {
				ValidateQuobyte(c, &v1.QuobyteVolumeSource{Registry: "r"}, field.NewPath("quobyte"))
			},
			want: []string{`quobyte.registry: Invalid value: "r": must be a host:port pair or multiple pairs separated by commas`, `quobyte.volume: Required value`},
		},
		"fc": {
			rules: func(c *check.Checker) {
				ValidateFibreChannel(c, &v1.FCVolumeSource{TargetWWNs: []string{"a"}}, field.NewPath("fc"))
			},
			want: []string{`fc.lun: Required value: lun is required if targetWWNs is specified`},
		},
		"flex": {
			rules: func(c *check.Checker) {
				ValidateFlexVolume(c, &v1.FlexVolumeSource{Driver: "d", Options: map[string]string{"my.K8s.io/a": "", "b": ""}}, field.NewPath("flexVolume"))
			},
			want: []string{`flexVolume.options[my.K8s.io/a]: Invalid value: "my.K8s.io/a": kubernetes.io and k8s.io namespaces are reserved`},
		},
		"azureFile": {
			rules: func(c *check.Checker) { ValidateAzureFile(c, &v1.AzureFileVolumeSource{}, field.NewPath("azureFile")) },
			want:  []string{`azureFile.secretName: Required value`, `azureFile.shareName: Required value`},
		},
		"azureDisk": {
			rules: func(c *check.Checker) {
				ValidateAzureDisk(c, &v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "x", Kind: new(v1.AzureManagedDisk)}, field.NewPath("azureDisk"))
			},
			want: []string{`azureDisk.diskURI: Unsupported value: "x": supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"`},
		},
		"vsphere": {
			rules: func(c *check.Checker) {
				ValidateVsphereVolume(c, &v1.VsphereVirtualDiskVolumeSource{}, field.NewPath("vsphereVolume"))
			},
			want: []string{`vsphereVolume.volumePath: Required value`},
		},
		"photon": {
			rules: func(c *check.Checker) {
				ValidatePhotonDisk(c, &v1.PhotonPersistentDiskVolumeSource{}, field.NewPath("photonPersistentDisk"))
			},
			want: []string{`photonPersistentDisk.pdID: Required value`},
		},
		"portworx": {
			rules: func(c *check.Checker) {
				ValidatePortworxVolume(c, &v1.PortworxVolumeSource{}, field.NewPath("portworxVolume"))
			},
			want: []string{`portworxVolume.volumeID: Required value`},
		},
		"storageos": {
			rules: func(c *check.Checker) {
				ValidateStorageOS(c, &v1.StorageOSVolumeSource{VolumeNamespace: "N"}, field.NewPath("storageos"))
			},
			want: []string{`storageos.volumeName: Required value`, `storageos.volumeNamespace: Invalid value: "N": ` + checktest.NotDNSLabel},
		},
		"scaleIO": {
			rules: func(c *check.Checker) { ValidateScaleIO(c, &v1.ScaleIOVolumeSource{}, field.NewPath("scaleIO")) },
			want:  []string{`scaleIO.gateway: Required value`, `scaleIO.system: Required value`, `scaleIO.volumeName: Required value`},
		},
		"csi": {
			rules: func(c *check.Checker) {
				ValidateCSI(c, &v1.CSIVolumeSource{Driver: "a_b", NodePublishSecretRef: &v1.LocalObjectReference{}}, field.NewPath("csi"))
			},
			want: []string{`csi.driver: Invalid value: "a_b": ` + checktest.NotDNSSubdomain, `csi.nodePublishSecretRef.name: Required value`},
		},
	} {
		t.Run(name, func(t *testing.T) { checktest.Diff(t, test.want, check.Run(test.rules)) })
	}
}
