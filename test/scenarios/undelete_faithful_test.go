// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// oneOfEach has an object of each built-in namespaced kind that is stored.
const oneOfEach = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: account, ownerReferences: [OWNER], annotations: {a: b}}
imagePullSecrets: [{name: secret}]
automountServiceAccountToken: false
---
apiVersion: v1
kind: Secret
metadata: {name: secret, ownerReferences: [OWNER]}
immutable: true
stringData: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, ownerReferences: [OWNER], labels: {a: b}}
binaryData: {a: Yg==}
immutable: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, ownerReferences: [OWNER]}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, ownerReferences: [OWNER]}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, name: http}], sessionAffinity: ClientIP}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, ownerReferences: [OWNER], labels: {x: z}}
spec:
  serviceAccountName: account
  priorityClassName: system-node-critical
  containers: [{name: c, image: any, env: [{name: A, value: b}], resources: {requests: {cpu: 10m}}}]
  tolerations: [{key: x, operator: Exists}]
---
apiVersion: v1
kind: ReplicationController
metadata: {name: rc, ownerReferences: [OWNER]}
spec:
  replicas: 1
  selector: {app: rc}
  template: {metadata: {labels: {app: rc}}, spec: {containers: [{name: c, image: any}]}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, ownerReferences: [OWNER]}
spec: {limits: [{type: PersistentVolumeClaim, max: {storage: 10Gi}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota, ownerReferences: [OWNER]}
spec: {hard: {services: "10"}}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: template, ownerReferences: [OWNER]}
template: {metadata: {labels: {app: t}}, spec: {containers: [{name: c, image: any}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, ownerReferences: [OWNER]}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: any}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: rs, ownerReferences: [OWNER]}
spec:
  selector: {matchLabels: {app: rs}}
  template: {metadata: {labels: {app: rs}}, spec: {containers: [{name: c, image: any}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ds, ownerReferences: [OWNER]}
spec:
  selector: {matchLabels: {app: ds}}
  template: {metadata: {labels: {app: ds}}, spec: {containers: [{name: c, image: any}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: sts, ownerReferences: [OWNER]}
spec:
  serviceName: web
  selector: {matchLabels: {app: sts}}
  template: {metadata: {labels: {app: sts}}, spec: {containers: [{name: c, image: any}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: runs, ownerReferences: [OWNER]}
spec:
  template: {metadata: {labels: {app: runs}}, spec: {restartPolicy: Never, containers: [{name: c, image: any}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: done, ownerReferences: [OWNER], labels: {own: label}}
spec:
  template:
    metadata: {annotations: {kindred.dev/simulated-exit-after: 10ms, kindred.dev/simulated-exit-code: "0"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: any}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cron, ownerReferences: [OWNER]}
spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: any}]}}}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: pdb, ownerReferences: [OWNER]}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: hpa, ownerReferences: [OWNER]}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: policy, ownerReferences: [OWNER]}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ingress, ownerReferences: [OWNER]}
spec: {rules: [{host: a.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role, ownerReferences: [OWNER]}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binding, ownerReferences: [OWNER]}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: role}
subjects: [{kind: ServiceAccount, name: account}]
---
apiVersion: apps/v1
kind: ControllerRevision
metadata: {name: revision, ownerReferences: [OWNER]}
revision: 3
data: {a: b}
---
apiVersion: v1
kind: Pod
metadata: {generateName: generated-, ownerReferences: [OWNER]}
spec: {containers: [{name: c, image: any}]}
`

// differs are the fields in addition to the UID in which a restored object differs from the deleted
// one, as docs/ownership.md lists them.
var differs = [][]string{
	{"metadata", "resourceVersion"}, {"metadata", "creationTimestamp"}, {"metadata", "generation"}, {"metadata", "managedFields"},
	{"status", "observedGeneration"},
}

// differsOf are further fields of a kind: a pod starts again, so its Deployment becomes available
// again, its disruption budget allows disruptions again, and its autoscaler measures again. A
// terminated pod is not on a node.
var differsOf = map[string][][]string{
	"Pod":                     {{"status"}, {"spec", "nodeName"}},
	"Deployment":              {{"status", "conditions"}},
	"PodDisruptionBudget":     {{"status", "conditions"}},
	"HorizontalPodAutoscaler": {{"status"}},
}

// hasNewStatus reports whether the whole status of a kind differs.
func hasNewStatus(kind string) bool {
	return slices.ContainsFunc(differsOf[kind], func(path []string) bool { return slices.Equal(path, []string{"status"}) })
}

// portrait returns all objects of a namespace with the fields that an undeletion restores, with
// names instead of UIDs.
func (s *session) portrait(kinds string) map[string]string {
	s.Helper()
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON([]byte(s.kubectl("get", kinds, "-o", "json", "--show-managed-fields"))); err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, string(o.GetUID()), "UID of "+o.GetKind()+" "+o.GetName())
	}
	portrait := map[string]string{}
	for _, o := range list.Items {
		managers := []string{}
		for _, field := range o.GetManagedFields() {
			if field.Subresource != "status" || !hasNewStatus(o.GetKind()) {
				managers = append(managers, fmt.Sprintf("%s %s %s %s", field.Manager, field.Operation, field.Subresource, field.FieldsV1))
			}
		}
		slices.Sort(managers)
		for _, path := range append(slices.Clone(differs), differsOf[o.GetKind()]...) {
			unstructured.RemoveNestedField(o.Object, path...)
		}
		text, err := json.MarshalIndent(o.Object, "", " ")
		if err != nil {
			s.Fatal(err)
		}
		portrait[o.GetKind()+" "+o.GetName()] = strings.NewReplacer(names...).Replace(string(text) + "\n" + strings.Join(managers, "\n"))
	}
	return portrait
}

// TestUndeleteAsItWas: a restored object of any kind equals the deleted one except for the
// documented fields, and no other objects exist.
func TestUndeleteAsItWas(t *testing.T) {
	s := newSession(t, ownCluster(t, "--simulated-nodes", "1", "--no-node"))
	s.kubectl("create", "namespace", "shop")
	s = inNamespace(t, s.cluster, "shop")
	// A reference to a kind that is not served is kept.
	s.input(`{apiVersion: v1, kind: ConfigMap, metadata: {name: root, ownerReferences: [{apiVersion: ghosts.example.com/v1,
 kind: Ghost, name: unserved, uid: 66666666-0000-4000-8000-000000000000, blockOwnerDeletion: true}]}}`, "create", "-f", "-")
	owner := "{apiVersion: v1, kind: ConfigMap, name: root, uid: " + s.uid("configmap/root") + "}"
	s.input(strings.ReplaceAll(oneOfEach, "OWNER", owner), "create", "-f", "-")
	s.eventually("all pods run or have ended", func() error {
		pods := s.podPhases()
		if all := strings.Join(pods, " "); len(pods) != 10 || strings.Count(all, "Running") != 9 || !strings.Contains(all, "Succeeded") {
			return fmt.Errorf("%v", pods)
		}
		return nil
	})
	s.jobEnds("done", "complete")
	s.kubectl("rollout", "status", "deployment/web")
	s.kubectl("rollout", "status", "daemonset/ds")
	s.kubectl("rollout", "status", "statefulset/sts")

	var kinds []string
	for kind := range strings.Lines(s.kubectl("api-resources", "--namespaced", "--verbs=create,list,get", "-o", "name")) {
		kind = strings.TrimSpace(kind)
		if remade := []string{"events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpoints", "endpointslices.discovery.k8s.io"}; !slices.Contains(remade, kind) {
			kinds = append(kinds, kind)
		}
	}
	all := strings.Join(kinds, ",")
	var before map[string]string
	s.eventually("statuses do not change any more", func() error {
		earlier := before
		before = s.portrait(all)
		if diff := cmp.Diff(earlier, before); diff != "" {
			return fmt.Errorf("%s", diff)
		}
		return nil
	})
	s.kubectl("delete", "configmap", "root")
	s.eventually("all is gone", func() error {
		if left := s.portrait(all); len(left) > 3 {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
	r := s.kindred("undelete", "configmap/root")
	if r.code != 0 {
		t.Fatalf("exit %d, %s\n%s", r.code, r.err, r.out)
	}
	s.eventually("all is as it was", func() error {
		if diff := cmp.Diff(before, s.portrait(all)); diff != "" {
			return fmt.Errorf("%s", diff)
		}
		return nil
	})
}
