// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(manifest))
	o := &unstructured.Unstructured{}
	if err == nil {
		err = o.UnmarshalJSON(text)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	return o
}

func alone(schema.GroupKind, string, string) bool    { return false }
func together(schema.GroupKind, string, string) bool { return true }

func TestClean(t *testing.T) {
	for _, tt := range []struct {
		name, source, want string
		moves              memberFunc
	}{
		{"metadata", `
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: n, uid: u, resourceVersion: "1", generation: 2, creationTimestamp: x,
 generateName: a-, selfLink: /x, managedFields: [{manager: m}], labels: {l: v}, finalizers: [kubernetes.io/pvc-protection, orphan, foregroundDeletion, example.com/f],
 annotations: {keep: v, move.ownership.kindred.dev/u: "{}"}, ownerReferences: [{uid: o}]}, data: {k: v}}`, `
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, generateName: a-, namespace: n, labels: {l: v}, finalizers: [example.com/f], annotations: {keep: v}, ownerReferences: [{uid: o}]}, data: {k: v}}`, alone},
		{"status", `{apiVersion: e.com/v1, kind: K, metadata: {name: a}, spec: {x: 1}, status: {y: 2}}`, `{apiVersion: e.com/v1, kind: K, metadata: {name: a}, spec: {x: 1}}`, alone},
		{"Service", `
{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], healthCheckNodePort: 3, type: NodePort, ports: [{port: 80, nodePort: 30000}]}}`, `
{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: NodePort, ports: [{port: 80}]}}`, alone},
		{"headless Service", `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, clusterIPs: [None]}}`, `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, clusterIPs: [None]}}`, alone},
		{"Pod", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n, priority: 0, priorityClassName: c, ephemeralContainers: [{}], containers: [{name: c}]}}`,
			`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priorityClassName: c, containers: [{name: c}]}}`, alone},
		{"claim without its volume", `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, annotations: {pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: node-1}}, spec: {volumeName: v}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {}}`, alone},
		{"claim with its volume", `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, annotations: {pv.kubernetes.io/bind-completed: "yes"}}, spec: {volumeName: v}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {volumeName: v}}`, together},
		{"volume without its claim", `
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {claimRef: {namespace: n, name: a, uid: u}}}`,
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {}}`, alone},
		{"volume with its claim", `
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {claimRef: {namespace: n, name: a, uid: u, resourceVersion: "7"}}}`,
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {claimRef: {namespace: n, name: a, uid: u}}}`, together},
		{"Job", `
{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {controller-uid: u, batch.kubernetes.io/controller-uid: u, job-name: a}}, spec: {selector: {matchLabels: {x: u}}, template: {metadata: {labels: {controller-uid: u, own: l}}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {job-name: a}}, spec: {template: {metadata: {labels: {own: l}}}}}`, alone},
		{"Job with a selector of its own", `
{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {manualSelector: true, selector: {matchLabels: {x: y}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {manualSelector: true, selector: {matchLabels: {x: y}}}}`, alone},
		{"token", `{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: {kubernetes.io/service-account.name: s, kubernetes.io/service-account.uid: u}}, type: kubernetes.io/service-account-token, data: {token: eA==}}`,
			`{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: {kubernetes.io/service-account.name: s}}, type: kubernetes.io/service-account-token}`, alone},
		{"Secret", `{apiVersion: v1, kind: Secret, metadata: {name: a}, type: Opaque, data: {token: eA==}}`, `{apiVersion: v1, kind: Secret, metadata: {name: a}, type: Opaque, data: {token: eA==}}`, alone},
		{"ServiceAccount", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, secrets: [{name: t}], imagePullSecrets: [{name: p}]}`, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, imagePullSecrets: [{name: p}]}`, alone},
		{"another group's Service", `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: x}}`, `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: x}}`, alone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := parse(t, tt.source)
			before := source.DeepCopy()
			if diff := cmp.Diff(parse(t, tt.want).Object, Clean(source, tt.moves).Object); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before.Object, source.Object); diff != "" {
				t.Errorf("the source was changed:\n%s", diff)
			}
		})
	}
}

// TestHold: a hold leaves the controller nothing to do, and the release patch restores the object
// exactly.
func TestHold(t *testing.T) {
	for _, tt := range []struct {
		name, source, held string
		sized              bool
	}{
		{"Deployment", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 3, x: y}}`, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 0, paused: true, x: y}}`, false},
		{"paused Deployment", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 3, paused: true}}`, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 0, paused: true}}`, false},
		{"StatefulSet", `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {replicas: 2}}`, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {replicas: 0}}`, false},
		{"ReplicaSet alone", `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 2}}`, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 0}}`, false},
		{"ReplicaSet of a Deployment", `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 2}}`, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 0}}`, true},
		{"Job", `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {suspend: false}}`, `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {suspend: true}}`, false},
		{"CronJob", `{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {}}`, `{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {suspend: true}}`, false},
		{"Pod", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {schedulingGates: [{name: g}]}}`, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {schedulingGates: [{name: g}, {name: ownership.kindred.dev/moving}]}}`, false},
		{"Machine", `{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachine, metadata: {name: a, annotations: {b: c}}}`,
			`{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachine, metadata: {name: a, annotations: {b: c, cluster.x-k8s.io/paused: "true"}}}`, false},
		{"unknown kind", `{apiVersion: e.com/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 2}}`, `{apiVersion: e.com/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 2}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source, object := parse(t, tt.source), parse(t, tt.source)
			release := Hold(object, tt.sized)
			if diff := cmp.Diff(parse(t, tt.held).Object, object.Object); diff != "" {
				t.Error(diff)
			}
			if release == "" {
				return
			}
			held, err := json.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			text, err := jsonpatch.MergePatch(held, []byte(release))
			if err != nil {
				t.Fatal(err)
			}
			want := source
			if tt.sized {
				want = object
			}
			if diff := cmp.Diff(want.Object, parse(t, string(text)).Object); diff != "" {
				t.Errorf("released by %s:\n%s", release, diff)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	for _, tt := range []struct{ name, source, want string }{
		{"custom", `{apiVersion: e.com/v1, kind: K, metadata: {name: a, generation: 7}, status: {observedGeneration: 7, conditions: [{type: T, observedGeneration: 6}, {type: U}]}}`,
			`{observedGeneration: 2, conditions: [{type: T, observedGeneration: 1}, {type: U}]}`},
		{"never observed", `{apiVersion: e.com/v1, kind: K, metadata: {name: a, generation: 7}, status: {observedGeneration: 1, phase: P}}`, `{phase: P}`},
		{"lagging behind by a generation that the copy does not have", `{apiVersion: e.com/v1, kind: K, metadata: {name: a, generation: 3}, status: {observedGeneration: 1, phase: P}}`, `{phase: P}`},
		{"nested conditions", `{apiVersion: e.com/v1, kind: K, metadata: {name: a, generation: 7}, status: {parents: [{name: p, conditions: [{type: T, observedGeneration: 7}, {type: U, observedGeneration: 1}]}], of: {another: {observedGeneration: 9}}}}`,
			`{parents: [{name: p, conditions: [{type: T, observedGeneration: 2}, {type: U}]}], of: {another: {observedGeneration: 9}}}`},
		{"Cluster API, paused", `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: a}, status: {conditions: [{type: Paused, status: "True"}, {type: Ready, status: "True"}], nodeRef: {name: n}}}`,
			`{conditions: [{type: Ready, status: "True"}], nodeRef: {name: n}}`},
		{"Job", `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {succeeded: 1, active: 2, ready: 1, uncountedTerminatedPods: {}}}`, `{succeeded: 1}`},
		{"Deployment", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, status: {replicas: 1}}`, ""},
		{"none", `{apiVersion: e.com/v1, kind: K, metadata: {name: a}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := parse(t, tt.source)
			got := statusOf(source)
			if tt.want == "" {
				if got != nil {
					t.Errorf("%v is copied", got)
				}
				return
			}
			transplant.ShiftGenerations(got, source.GetGeneration(), 2)
			if diff := cmp.Diff(parse(t, "{apiVersion: v1, kind: K, status: "+tt.want+"}").Object["status"], any(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDigest: the digest changes if and only if copied content changes.
func TestDigest(t *testing.T) {
	base := `{apiVersion: e.com/v1, kind: K, metadata: {name: a, uid: u, resourceVersion: "1", ownerReferences: [{uid: o}], finalizers: [e.com/f]}, spec: {x: 1}, status: {y: 1}}`
	of := func(old, new string) string {
		changed := strings.Replace(base, old, new, 1)
		if changed == base && old != "" {
			t.Fatalf("no %q", old)
		}
		return digest(parse(t, changed), alone)
	}
	same := of("", "")
	for _, change := range [][2]string{{"x: 1", "x: 2"}, {"y: 1", "y: 2"}, {"uid: u", "labels: {l: v}"}, {"uid: u", "annotations: {l: v}"}} {
		if of(change[0], change[1]) == same {
			t.Errorf("%v does not change the digest", change)
		}
	}
	for _, change := range [][2]string{{`"1"`, `"2"`}, {"ownerReferences: [{uid: o}], ", ""}, {", finalizers: [e.com/f]", ""}, {"uid: u", "generation: 4"}} {
		if of(change[0], change[1]) != same {
			t.Errorf("%v changes the digest", change)
		}
	}
	if digest(parse(t, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, status: {replicas: 1}}`), alone) !=
		digest(parse(t, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, status: {replicas: 2}}`), alone) {
		t.Error("a status that is not copied changes the digest")
	}
}

func TestLacks(t *testing.T) {
	for _, tt := range []struct{ name, sent, stored, want string }{
		{"defaults", `{spec: {a: 1}}`, `{spec: {a: 1, b: 2}, status: {x: y}}`, ""},
		{"changed value", `{spec: {a: {b: 1}}}`, `{spec: {a: {b: 2}}}`, "spec.a.b"},
		{"absent", `{data: {a: x}}`, `{}`, "data"},
		{"empty", `{spec: {a: {}, b: [], c: "", d: 0, e: false, f: null}}`, `{spec: {}}`, ""},
		{"field injected into a list", `{spec: {v: [{name: a}, {name: c}]}}`, `{spec: {v: [{name: a, x: y}, {name: b}, {name: c}]}}`, ""},
		{"item missing from a list", `{spec: {v: [{name: a}, {name: b}]}}`, `{spec: {v: [{name: b}, {name: a}]}}`, "spec.v[1]"},
		{"labels", `{metadata: {labels: {a: b}}}`, `{metadata: {labels: {a: c}}}`, "metadata.labels.a"},
		{"annotations", `{metadata: {annotations: {a: b}}}`, `{metadata: {}}`, "metadata.annotations.a"},
		{"annotations of controllers", `{metadata: {annotations: {deployment.kubernetes.io/revision: "1"}}}`, `{metadata: {}}`, ""},
		{"missing owner", `{metadata: {ownerReferences: [{uid: a, kind: K, apiVersion: v1, name: n}]}}`, `{metadata: {}}`, "metadata.ownerReferences"},
		{"surplus owner", `{metadata: {}}`, `{metadata: {ownerReferences: [{uid: a, kind: K, apiVersion: v1, name: n}]}}`, "metadata.ownerReferences"},
		{"owner of another version", `{metadata: {ownerReferences: [{uid: a, kind: K, apiVersion: g/v1, name: n}]}}`, `{metadata: {ownerReferences: [{uid: a, kind: K, apiVersion: g/v2, name: n}]}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := func(text string) *unstructured.Unstructured {
				return parse(t, "{apiVersion: v1, kind: K, "+strings.TrimPrefix(text, "{"))
			}
			if got := lacks(of(tt.sent), of(tt.stored)); got != tt.want {
				t.Errorf("missing %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCarryOver(t *testing.T) {
	desired := parse(t, `{apiVersion: v1, kind: Service, metadata: {name: a, finalizers: [e.com/b, e.com/c]}, spec: {ports: [{port: 80}]}}`)
	stored := parse(t, `{apiVersion: v1, kind: Service, metadata: {name: a, uid: u, resourceVersion: "4", finalizers: [e.com/a, e.com/b]}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 81}]}}`)
	carryOver(desired, stored)
	want := parse(t, `{apiVersion: v1, kind: Service, metadata: {name: a, uid: u, resourceVersion: "4", finalizers: [e.com/a, e.com/b, e.com/c]}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`)
	if diff := cmp.Diff(want.Object, desired.Object); diff != "" {
		t.Error(diff)
	}
}
