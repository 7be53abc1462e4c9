// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

var converter = func() *Converter {
	c, err := New()
	if err != nil {
		panic(err)
	}
	return c
}()

// converted converts a manifest.
func converted(t *testing.T, manifest, version string) string {
	t.Helper()
	documents, err := readAll("test", strings.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	out, err := converter.Documents(documents, gv, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(out.Text)
}

func TestConvert(t *testing.T) {
	for name, test := range map[string]struct{ in, version, want string }{
		"daemon set": {
			in: `
# by hand
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata: {name: agent, annotations: {kubernetes.io/created-by: old}}
spec: # lost
  templateGeneration: 4
  color: blue
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: c, image: any, resources: {}}]
      volumes: [{name: v, emptyDir: {}}]
`,
			want: `# by hand
# DaemonSet/agent: metadata.annotations: kubernetes.io/created-by has no meaning since Kubernetes 1.9; the controller of an object is in metadata.ownerReferences
# DaemonSet/agent: spec.color: there is no such field in extensions/v1beta1; dropped
# DaemonSet/agent: metadata.labels: set to {"app":"agent"}, the default in extensions/v1beta1; apps/v1 has no default
# DaemonSet/agent: spec.selector: set to {"matchLabels":{"app":"agent"}}, the default in extensions/v1beta1; apps/v1 has no default
# DaemonSet/agent: spec.updateStrategy.type: set to OnDelete, the default in extensions/v1beta1; apps/v1 defaults to RollingUpdate
# DaemonSet/agent: spec.selector: cannot be changed in apps/v1; it could be in extensions/v1beta1
# DaemonSet/agent: a DELETE request without propagation policy deletes dependents in apps/v1; in extensions/v1beta1 it orphans them
# DaemonSet/agent: spec.templateGeneration: is the annotation deprecated.daemonset.template.generation in apps/v1, which the server sets itself
apiVersion: apps/v1
kind: DaemonSet
metadata:
  annotations:
    deprecated.daemonset.template.generation: "4"
    kubernetes.io/created-by: old
  labels:
    app: agent
  name: agent
spec:
  selector:
    matchLabels:
      app: agent
  template:
    metadata:
      labels:
        app: agent
    spec:
      containers:
      - image: any
        name: c
        resources: {}
      volumes:
      - emptyDir: {}
        name: v
  updateStrategy:
    type: OnDelete
`,
		},
		"back to an old version": {
			in: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {a: b}, annotations: {deprecated.deployment.rollback.to: "3"}}
spec:
  selector: {matchLabels: {app: web}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: web}}
`,
			version: "extensions/v1beta1",
			want: `# Deployment/web: spec.progressDeadlineSeconds: set to 600, the default in apps/v1; extensions/v1beta1 defaults to 2147483647
# Deployment/web: spec.revisionHistoryLimit: set to 10, the default in apps/v1; extensions/v1beta1 defaults to 2147483647
# Deployment/web: spec.selector: can be changed in extensions/v1beta1; it could not be in apps/v1
# Deployment/web: a DELETE request without propagation policy orphans dependents in extensions/v1beta1; in apps/v1 it deletes them
# Deployment/web: metadata.annotations: deprecated.deployment.rollback.to is the field spec.rollbackTo in extensions/v1beta1
apiVersion: extensions/v1beta1
kind: Deployment
metadata:
  labels:
    a: b
  name: web
spec:
  progressDeadlineSeconds: 600
  revisionHistoryLimit: 10
  rollbackTo:
    revision: 3
  selector:
    matchLabels:
      app: web
  strategy:
    type: Recreate
  template:
    metadata:
      labels:
        app: web
`,
		},
		"a list of a kind": {
			in: `
apiVersion: apps/v1beta1
kind: StatefulSetList
items:
- metadata: {name: db}
  spec: {serviceName: db, updateStrategy: {type: RollingUpdate}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}}}
`,
			want: `# StatefulSetList: items[0], StatefulSet/db: metadata.labels: set to {"a":"b"}, the default in apps/v1beta1; apps/v1 has no default
# StatefulSetList: items[0], StatefulSet/db: a DELETE request without propagation policy deletes dependents in apps/v1; in apps/v1beta1 it orphans them
apiVersion: apps/v1
items:
- metadata:
    labels:
      a: b
    name: db
  spec:
    selector:
      matchLabels:
        a: b
    serviceName: db
    template:
      metadata:
        labels:
          a: b
    updateStrategy:
      type: RollingUpdate
kind: StatefulSetList
`,
		},
		"a rollback to the last revision": {
			in: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {a: b}, annotations: {deprecated.deployment.rollback.to: "0"}}
spec:
  progressDeadlineSeconds: 1
  replicas: 1
  revisionHistoryLimit: 1
  selector: {matchLabels: {a: b}}
  strategy: {type: Recreate}
  template: {metadata: {labels: {a: b}}}
`,
			version: "extensions/v1beta1",
			want: `# Deployment/web: spec.selector: can be changed in extensions/v1beta1; it could not be in apps/v1
# Deployment/web: a DELETE request without propagation policy orphans dependents in extensions/v1beta1; in apps/v1 it deletes them
# Deployment/web: metadata.annotations: deprecated.deployment.rollback.to is the field spec.rollbackTo in extensions/v1beta1
apiVersion: extensions/v1beta1
kind: Deployment
metadata:
  labels:
    a: b
  name: web
spec:
  progressDeadlineSeconds: 1
  replicas: 1
  revisionHistoryLimit: 1
  rollbackTo: {}
  selector:
    matchLabels:
      a: b
  strategy:
    type: Recreate
  template:
    metadata:
      labels:
        a: b
`,
		},
		"an autoscaler with annotations": {
			in: `
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata:
  name: web
  annotations:
    autoscaling.alpha.kubernetes.io/behavior: '{"ScaleDown":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}]}}'
spec: {maxReplicas: 3, minReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, targetCPUUtilizationPercentage: 80}
`,
			version: "autoscaling/v2",
			want: `# HorizontalPodAutoscaler/web: spec.behavior.scaleUp: defaults to {"policies":[{"periodSeconds":15,"type":"Pods","value":4},{"periodSeconds":15,"type":"Percent","value":100}],"selectPolicy":"Max","stabilizationWindowSeconds":0} in autoscaling/v2, and had no value in autoscaling/v1
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
spec:
  behavior:
    scaleDown:
      policies:
      - periodSeconds: 15
        type: Percent
        value: 100
      selectPolicy: Max
      stabilizationWindowSeconds: 0
  maxReplicas: 3
  metrics:
  - resource:
      name: cpu
      target:
        averageUtilization: 80
        type: Utilization
    type: Resource
  minReplicas: 1
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: web
`,
		},
		"left unchanged": {
			in: `---
apiVersion: example.com/v1
kind: Thing # mine
---
# only a comment
---
{apiVersion: v1, kind: Service, metadata: {name: s}}
---
apiVersion: extensions/v1beta1
kind: PodSecurityPolicy
---
apiVersion: extensions/v1beta1
kind: Scale
---
apiVersion: apps/v7
kind: Deployment
---
apiVersion: apps/v1
kind: Deployment # current
`,
			version: "apps/v1",
			want: `# Thing: left unchanged: Thing in example.com/v1 is not a built-in kind; only the server of its API can convert it
apiVersion: example.com/v1
kind: Thing # mine
---
# only a comment
---
# Service/s: left unchanged: apps/v1 has no Service; it exists in v1
{apiVersion: v1, kind: Service, metadata: {name: s}}
---
# PodSecurityPolicy: left unchanged: PodSecurityPolicy was removed in Kubernetes 1.25 without a successor; Pod Security admission replaces it
apiVersion: extensions/v1beta1
kind: PodSecurityPolicy
---
# Scale: left unchanged: Scale in extensions/v1beta1 has no conversion
apiVersion: extensions/v1beta1
kind: Scale
---
# Deployment: left unchanged: apps/v7 is not a version that can be converted; there are apps/v1, apps/v1beta2, apps/v1beta1
apiVersion: apps/v7
kind: Deployment
---
apiVersion: apps/v1
kind: Deployment # current
`,
		},
		"autoscaler": {
			in:      "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}",
			version: "autoscaling/v1",
			want: `apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata:
  name: h
spec:
  maxReplicas: 3
  scaleTargetRef:
    kind: Deployment
    name: web
  targetCPUUtilizationPercentage: 50
`,
		},
		"disruption budget": {
			in: "{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {selector: {}}}",
			want: `# PodDisruptionBudget/b: spec.selector: an empty selector selects no pods in policy/v1beta1 and all pods in policy/v1; written as an expression that selects none
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: b
spec:
  selector:
    matchExpressions:
    - key: pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match
      operator: Exists
`,
		},
		"ingress": {
			in: "{apiVersion: extensions/v1beta1, kind: Ingress, metadata: {name: i}, spec: {backend: {serviceName: s, servicePort: http}, rules: [{http: {paths: [{path: /, backend: {serviceName: s, servicePort: 80}}]}}]}}",
			want: `# Ingress/i: spec.rules[0].http.paths[0].pathType: set to ImplementationSpecific, the default in extensions/v1beta1; networking.k8s.io/v1 has no default
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: i
spec:
  defaultBackend:
    service:
      name: s
      port:
        name: http
  rules:
  - http:
      paths:
      - backend:
          service:
            name: s
            port:
              number: 80
        path: /
        pathType: ImplementationSpecific
`,
		},
		"a list of several kinds": {
			in: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service, metadata: {name: s}}, {apiVersion: batch/v1beta1, kind: CronJob, metadata: {name: c}, spec: {schedule: \"* * * * *\"}}, {apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}}]}",
			want: `# List: items[2], PodSecurityPolicy/p: left unchanged: PodSecurityPolicy was removed in Kubernetes 1.25 without a successor; Pod Security admission replaces it
apiVersion: v1
items:
- apiVersion: v1
  kind: Service
  metadata:
    name: s
- apiVersion: batch/v1
  kind: CronJob
  metadata:
    name: c
  spec:
    schedule: '* * * * *'
- apiVersion: policy/v1beta1
  kind: PodSecurityPolicy
  metadata:
    name: p
kind: List
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, converted(t, test.in, test.version)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestConvertedAgain: the comments of an object that is left unchanged are not repeated.
func TestConvertedAgain(t *testing.T) {
	once := converted(t, "apiVersion: example.com/v1\nkind: Thing\n", "")
	if again := converted(t, once, ""); again != once || !strings.HasPrefix(once, "# Thing: left unchanged: ") {
		t.Errorf("first\n%sthen\n%s", once, again)
	}
}

// TestLost: what a version cannot express is noted.
func TestLost(t *testing.T) {
	got := converted(t, `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: c}, spec: {controller: example.com/c}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i}, spec: {defaultBackend: {service: {name: s, port: {name: http, number: 80}}}}}`, "networking.k8s.io/v1beta1")
	if want := "# Ingress/i: spec.defaultBackend.service.port.number: 80 cannot be expressed in networking.k8s.io/v1beta1; dropped\n"; !strings.Contains(got, want) || strings.Count(got, "dropped") != 1 {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestMeaningIsKept converts arbitrary old objects: with defaults, they are then what they were.
func TestMeaningIsKept(t *testing.T) {
	fill := randfill.New().NilChance(.6).NumElements(1, 2).RandSource(rand.NewSource(1)).Funcs(
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(m *metav1.ObjectMeta, c randfill.Continue) { m.Name = "x"; c.Fill(&m.Labels) },
		func(q *intstr.IntOrString, c randfill.Continue) { *q = intstr.FromInt32(c.Int31()) },
		func(spec *corev1.PodSpec, _ randfill.Continue) {
			spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		},
		func(s *metav1.LabelSelector, _ randfill.Continue) { s.MatchLabels = map[string]string{"a": "b"} },
	)
	for _, example := range []runtime.Object{
		&extensionsv1beta1.Deployment{}, &extensionsv1beta1.DaemonSet{}, &extensionsv1beta1.ReplicaSet{}, &extensionsv1beta1.Ingress{}, &extensionsv1beta1.NetworkPolicy{},
		&appsv1beta1.Deployment{}, &appsv1beta1.StatefulSet{}, &rbacv1beta1.ClusterRole{}, &rbacv1beta1.RoleBinding{}, &storagev1beta1.StorageClass{},
	} {
		kinds, _, err := converter.scheme.ObjectKinds(example)
		if err != nil {
			t.Fatal(err)
		}
		stored, known := converter.stored(kinds[0])
		if !known {
			t.Fatalf("%s is not known", kinds[0])
		}
		for range 40 {
			older := example.DeepCopyObject()
			fill.Fill(older)
			fields, err := fieldsOf(older)
			if err != nil {
				t.Fatal(err)
			}
			in := &unstructured.Unstructured{Object: fields}
			in.SetGroupVersionKind(kinds[0])
			keepsMeaning(t, in, stored)
		}
	}
}

func keepsMeaning(t *testing.T, in *unstructured.Unstructured, stored schema.GroupVersionKind) {
	t.Helper()
	before := in.DeepCopy()
	result, err := converter.Convert(in, schema.GroupVersion{})
	if err != nil || !result.Changed {
		t.Fatalf("%v, changed: %t", err, result.Changed)
	}
	if !cmp.Equal(before, in) {
		t.Error("the input was changed")
	}
	older, _, err := converter.decode(in, in.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	converter.scheme.Default(older)
	meant, err := converter.between(older, in.GroupVersionKind(), stored)
	if err != nil {
		t.Fatal(err)
	}
	want, err := fieldsOf(meant)
	if err != nil {
		t.Fatal(err)
	}
	got, err := converter.defaulted(result.Object.Object, stored)
	if err != nil {
		t.Fatal(err)
	}
	unset := func(d difference) bool { // the value "unset" of a field that has a default
		return d.want == nil && slices.ContainsFunc(result.Notes, func(note string) bool { return strings.HasPrefix(note, d.path.String()+": defaults to") })
	}
	if d := slices.DeleteFunc(differences(want, got), unset); len(d) > 0 {
		t.Errorf("%s: %v; notes:\n%s", in.GroupVersionKind(), d, strings.Join(result.Notes, "\n"))
	}
}
