// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
)

// TestVolumesInUse: volumes and claims that are deleted while in use are removed after their last use.
func TestVolumesInUse(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: volumes-in-use, volumeName: volumes-in-use, volumeAttributesClassName: volumes-in-use}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: idle}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: ""}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: volumes-in-use}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, storageClassName: volumes-in-use, hostPath: {path: /tmp/volumes-in-use}}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: volumes-in-use}
driverName: csi.example.com
parameters: {iops: "1"}
`)
	t.Cleanup(func() { s.try("delete", "pv/volumes-in-use", "volumeattributesclass/volumes-in-use", "--wait=false") })
	s.prints("[kubernetes.io/pvc-protection]", "get", "pvc", "data", "-o", "go-template={{.metadata.finalizers}}")
	s.prints("[kubernetes.io/pv-protection]", "get", "pv", "volumes-in-use", "-o", "go-template={{.metadata.finalizers}}")
	s.prints("[kubernetes.io/vac-protection]", "get", "volumeattributesclass", "volumes-in-use", "-o", "go-template={{.metadata.finalizers}}")
	s.kubectl("delete", "pvc", "idle")

	node := strings.TrimSpace(s.jsonpath("{.items[0].metadata.name}", "nodes"))
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  nodeName: ` + node + `
  containers: [{name: a, image: registry.example/any:v1}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`)
	uid := s.jsonpath("{.metadata.uid}", "pvc", "data")
	s.kubectl("patch", "pv", "volumes-in-use", "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"claimRef":{"namespace":%q,"name":"data","uid":%q}}}`, s.namespace, uid))
	s.kubectl("patch", "pv", "volumes-in-use", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Bound"}}`)
	for _, kept := range []string{"pvc/data", "pv/volumes-in-use", "volumeattributesclass/volumes-in-use"} {
		s.kubectl("delete", kept, "--wait=false")
	}
	s.refused([]string{"timed out"}, "wait", "--for=delete", "pvc/data", "--timeout=1s")
	s.contains(s.kubectl("get", "pvc,pv", "--no-headers"), "Terminating")
	s.kubectl("get", "pv/volumes-in-use", "volumeattributesclass/volumes-in-use")

	s.kubectl("delete", "pod", "user")
	s.gone("pvc", "data")
	s.gone("volumeattributesclass", "volumes-in-use")
	s.gone("pv", "volumes-in-use")
}
