// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/test/images"
)

// absentData is an image that no node has. CRI-O resolves only full names without a configuration of short ones.
const absentData = "docker.io/library/data:absent"

// mounting returns a pod whose container has an image volume at /data.
func mounting(name, reference, options string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, image: {reference: "` + reference + `", pullPolicy: Never}}]
  containers:
  - {name: c, image: "` + image + `", command: [sleep, "3600"], volumeMounts: [{name: data, mountPath: /data` + options + `}]}
---`
}

// TestImageVolumes: the files of an OCI image are a volume, whole or a directory of it, which no container can change. A pod
// whose image is missing waits with the reason that it would have for its container's image, unless no container mounts the
// volume. A runtime that cannot mount images is named.
func TestImageVolumes(t *testing.T) { checkImageVolumes(t, withNode(t)) }

// TestContainerd2: on containerd 2 with the machine's OCI runtime, a node runs pods, and has what containerd 1 lacks.
func TestContainerd2(t *testing.T) {
	if userRuntime != "" {
		t.Skip("it starts a containerd, and another runtime is to be tested")
	}
	needContainers(t)
	useContainerd2(t)
	s := newSession(t, ownClusterWithNode(t))
	if !isContainerd(s, "2") {
		t.Fatal("the node's runtime is another one")
	}
	checkImageVolumes(t, s)
	checkRecursiveReadOnlyMounts(t, s)
	checkUserNamespaces(t, s)
}

func checkImageVolumes(t *testing.T, s *session) {
	t.Helper()
	loadData(t, s)
	s.apply(mounting("whole", images.DataName, "") + mounting("part", images.DataName, ", subPath: conf, readOnly: true") +
		mounting("no-part", images.DataName, ", subPath: absent") + mounting("absent", absentData, "") + `
apiVersion: v1
kind: Pod
metadata: {name: unused}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, image: {reference: "` + absentData + `", pullPolicy: Never}}]
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.eventually("the image volume, or why there is none", func() error {
		ready := s.jsonpath("{.status.conditions[?(@.type=='Ready')].status}", "pod", "whole") == "True"
		if !ready && !strings.Contains(s.kubectl("describe", "pod", "whole"), cannotMountImages) {
			return fmt.Errorf("neither: %s", s.kubectl("describe", "pod", "whole"))
		}
		return nil
	})
	if isContainerd(s, "1") {
		s.describes("pod", "part", cannotMountImages)
		return
	}

	s.ready("whole")
	s.prints("hello\nkey\n", "exec", "whole", "--", "cat", "/data/hello", "/data/conf/key")
	s.refused([]string{"Read-only file system"}, "exec", "whole", "--", "touch", "/data/new")
	s.ready("part")
	s.prints("key\n", "exec", "part", "--", "ls", "/data")
	s.refused([]string{"Read-only file system"}, "exec", "part", "--", "rm", "/data/key")
	mounts := s.containerStatus("part").VolumeMounts
	if i := slices.IndexFunc(mounts, func(m corev1.VolumeMountStatus) bool { return m.Name == "data" }); i < 0 || !mounts[i].ReadOnly || mounts[i].MountPath != "/data" {
		t.Errorf("status of the mounts: %+v", mounts)
	}
	s.ready("unused")

	for name, reason := range map[string]string{"absent": "ErrImageNeverPull", "no-part": "CreateContainerError"} {
		s.eventually(name, func() error {
			if w := s.containerStatus(name).State.Waiting; w == nil || w.Reason != reason {
				return fmt.Errorf("%+v, want %s", w, reason)
			}
			return nil
		})
	}
	s.describes("pod", "absent", `Container image "`+absentData+`" is not present with pull policy of Never`, "Error: ErrImageNeverPull")
	s.describes("pod", "no-part", "absent")
}

// isContainerd reports whether the node's runtime is containerd of a major version. Some builds put a v before it.
func isContainerd(s *session, major string) bool {
	s.Helper()
	version := s.jsonpath("{.status.nodeInfo.containerRuntimeVersion}", "node", s.nodes()[0])
	return strings.HasPrefix(strings.Replace(version, "://v", "://", 1), "containerd://"+major+".")
}

// cannotMountImages is the reason on containerd before 2.1.
const cannotMountImages = "cannot mount images as volumes: containerd 2.1 is required"

// loadData loads the image of files. Another runtime has it already.
func loadData(t *testing.T, s *session) {
	t.Helper()
	if userRuntime != "" {
		return
	}
	data, err := images.Data()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "data.tar")
	if err := images.Write(file, data, images.DataName); err != nil {
		t.Fatal(err)
	}
	if r := s.cluster.run("image", "load", file); r.code != 0 {
		t.Fatalf("kindred image load: %s", r.err)
	}
}
