// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const database = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: ` + image + `
        command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
        volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /scratch}]
        volumeDevices: [{name: raw, devicePath: /dev/raw}]
      volumes:
      - name: scratch
        ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}
  - metadata: {name: raw}
    spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 16Mi}}}
`

// TestDataSurvives: what a pod writes to its claims is there for the next pod, after the process was killed,
// and after the claim was deleted and restored, if its volume is retained.
func TestDataSurvives(t *testing.T) {
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	s.apply(database)
	s.comes("db-0")
	s.shell("echo kept > /data/file; echo gone > /scratch/file; printf raw | dd of=/dev/raw 2>/dev/null; sync")
	before := s.lives("app=db")

	c.kill(t)
	c.again(t)
	s.stayed(before, "app=db")
	s.data()
	s.kubectl("delete", "pod", "db-0")
	s.comes("db-0")
	s.data()
	if out := s.shell("ls /scratch"); out != "" {
		t.Errorf("the ephemeral volume of the new pod has %q", out)
	}
	s.kubectl("patch", "pvc", "raw-db-0", "-p", `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)
	s.eventually("the device grows", func() error {
		if size := s.shell("blockdev --getsize64 /dev/raw"); size != "33554432\n" {
			return fmt.Errorf("%s bytes", size)
		}
		return nil
	})

	// A retained volume is bound to the restored claim; the data of one with policy Delete is gone.
	retained := s.jsonpath("{.spec.volumeName}", "pvc", "data-db-0")
	s.kubectl("patch", "pv", retained, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	s.kubectl("delete", "statefulset/db", "pvc/data-db-0", "pvc/raw-db-0")
	for _, pvc := range []string{"data-db-0", "raw-db-0", "db-0-scratch"} {
		s.gone("pvc", pvc)
	}
	s.eventually("only the retained volume is left", func() error { return s.directories(retained) })
	s.contains(s.kindred("undelete", "pvc/data-db-0").out, "its volume "+retained+" is bound to it again")
	s.contains(s.kindred("undelete", "pvc/raw-db-0").out, "the claim is restored unbound, without its data")
	s.kindred("undelete", "statefulset/db")
	s.comes("db-0")
	s.data2("kept\n", "")
	s.kubectl("patch", "pv", retained, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	s.kubectl("delete", "namespace", s.namespace)
	s.eventually("all directories are removed", func() error { return s.directories() })
}

// comes waits until a pod that a controller creates is Ready.
func (s *session) comes(pod string) {
	s.Helper()
	s.kubectl("wait", "--for=create", "pod/"+pod, "--timeout", patience.String())
	s.ready(pod)
}

// shell runs a command in the database.
func (s *session) shell(command string) string {
	s.Helper()
	return s.kubectl("exec", "db-0", "--", "sh", "-c", command)
}

// data checks what the database has.
func (s *session) data() {
	s.Helper()
	s.data2("kept\n", "raw")
}

func (s *session) data2(file, device string) {
	s.Helper()
	got := s.shell("cat /data/file; head -c 3 /dev/raw | tr -d '\\000'")
	if want := file + device; got != want {
		s.Errorf("data %q, want %q", got, want)
	}
}

// directories returns an error unless the cluster has the directories of exactly these volumes.
func (s *session) directories(want ...string) error {
	entries, err := os.ReadDir(filepath.Join(s.cluster.dir, "volumes"))
	if err != nil {
		return err
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		return fmt.Errorf("directories %q, want %q", got, want)
	}
	return nil
}

// TestClaimsOnSimulatedNodes: the pods of a StatefulSet get volumes on their nodes, and come back to them.
func TestClaimsOnSimulatedNodes(t *testing.T) {
	s := newSession(t, ownCluster(t, "--no-node", "--simulated-nodes", "3"))
	s.apply(strings.Replace(database, "serviceName: db", "serviceName: db\n  replicas: 3\n  podManagementPolicy: Parallel\n  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}", 1))
	s.kubectl("rollout", "status", "statefulset/db", "--timeout", patience.String())
	for _, pod := range s.pods("app=db") {
		volume := s.jsonpath("{.spec.volumeName}", "pvc", "data-"+pod.Name)
		if node := s.jsonpath("{.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}", "pv", volume); node != pod.Spec.NodeName {
			t.Errorf("%s is on %s, its volume on %s", pod.Name, pod.Spec.NodeName, node)
		}
		s.kubectl("delete", "pod", pod.Name)
		s.comes(pod.Name)
		if again := s.pod(pod.Name); again.Spec.NodeName != pod.Spec.NodeName {
			t.Errorf("%s was on %s, is on %s", pod.Name, pod.Spec.NodeName, again.Spec.NodeName)
		}
	}
	s.contains(s.kindred("delete", "--preview", "statefulset/db").out, "PersistentVolumeClaim", "its volume is deleted too, with the data")
	s.kubectl("delete", "statefulset", "db")
	s.eventually("claims and volumes go", func() error {
		if left := s.kubectl("get", "pvc,pv", "-o", "name"); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}

// TestUnsatisfiedClaims: a claim that nothing satisfies says why, and so does the pod that uses it.
func TestUnsatisfiedClaims(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: no-class}
spec: {accessModes: [ReadWriteOnce], storageClassName: missing, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: no-volume}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", selector: {matchLabels: {no: volume}}, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: copy}
spec: {accessModes: [ReadWriteOnce], dataSource: {kind: PersistentVolumeClaim, name: no-volume}, resources: {requests: {storage: 1Gi}}}
`)
	for _, claim := range []string{"no-class", "no-volume", "copy", "absent"} {
		s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: ` + claim + `}
spec:
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: "any:v1"}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: ` + claim + `}}]
`)
	}
	for object, want := range map[string]string{
		"PersistentVolumeClaim/no-class":  `storageclass.storage.k8s.io "missing" not found`,
		"PersistentVolumeClaim/no-volume": "no persistent volumes available for this claim and no storage class is set",
		"PersistentVolumeClaim/copy":      `failed to provision volume with StorageClass "local-path": a new volume is empty: dataSource and dataSourceRef are not supported`,
		"Pod/no-volume":                   "pod has unbound immediate PersistentVolumeClaims",
		"Pod/absent":                      `persistentvolumeclaim "absent" not found`,
	} {
		s.eventually("event of "+object, func() error {
			if got := s.kubectl("events", "--for", object); !strings.Contains(got, want) {
				return fmt.Errorf("no %q in\n%s", want, got)
			}
			return nil
		})
	}
	if phases := s.jsonpath("{.items[*].status.phase}", "pvc,pods"); strings.ReplaceAll(phases, "Pending", "") != strings.Repeat(" ", 6) {
		t.Errorf("phases %s", phases)
	}
}
