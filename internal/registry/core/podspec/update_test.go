// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"math"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestUpdate(t *testing.T) {
	const (
		nothingElse = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
		terms       = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	)
	none := func(*v1.Pod) {}
	tolerations := func(tolerations ...v1.Toleration) func(*v1.Pod) {
		return spec(func(spec *v1.PodSpec) { spec.Tolerations = tolerations })
	}
	deadline := func(seconds int64) func(*v1.Pod) {
		return spec(func(spec *v1.PodSpec) { spec.ActiveDeadlineSeconds = &seconds })
	}
	gates := func(names ...string) func(*v1.Pod) {
		return spec(func(spec *v1.PodSpec) {
			for _, name := range names {
				spec.SchedulingGates = append(spec.SchedulingGates, v1.PodSchedulingGate{Name: name})
			}
		})
	}
	all := func(changes ...func(*v1.Pod)) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			for _, change := range changes {
				change(pod)
			}
		}
	}
	selector := func(labels map[string]string) func(*v1.Pod) {
		return spec(func(spec *v1.PodSpec) { spec.NodeSelector = labels })
	}
	affinity := func(terms ...[]string) func(*v1.Pod) {
		return spec(func(spec *v1.PodSpec) {
			selector := &v1.NodeSelector{}
			for _, keys := range terms {
				var term v1.NodeSelectorTerm
				for _, key := range keys {
					term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpExists})
				}
				selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
			}
			spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
		})
	}
	annotate := func(key, value string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.NodeName = "n"; metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
	}
	appArmor := v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "app"

	for name, test := range map[string]struct {
		old, new func(*v1.Pod)
		want     []string
	}{
		"nothing":  {none, none, nil},
		"metadata": {none, func(pod *v1.Pod) { pod.Labels = map[string]string{"a": "b"} }, nil},
		"name":     {none, func(pod *v1.Pod) { pod.Name = "other" }, []string{`metadata.name: Invalid value: "other": field is immutable`}},
		"an image": {none, first(func(c *v1.Container) { c.Image = "image:2" }), nil},
		"no image": {none, first(func(c *v1.Container) { c.Image = "" }), []string{`spec.containers[0].image: Required value`}},
		"an image of an init container": {
			spec(func(spec *v1.PodSpec) { spec.InitContainers = []v1.Container{container("init")} }),
			spec(func(spec *v1.PodSpec) {
				spec.InitContainers = []v1.Container{container("init")}
				spec.InitContainers[0].Image = "new"
			}), nil,
		},
		"a command":       {none, first(func(c *v1.Container) { c.Command = []string{"sh"} }), []string{nothingElse}},
		"a new container": {none, spec(func(spec *v1.PodSpec) { spec.Containers = append(spec.Containers, container("b")) }), []string{`spec.containers: Forbidden: pod updates may not add or remove containers`}},
		"node name":       {none, spec(func(spec *v1.PodSpec) { spec.NodeName = "n" }), []string{nothingElse}},

		"a deadline":        {none, deadline(10), nil},
		"a nearer deadline": {deadline(10), deadline(5), nil},
		"a later deadline":  {deadline(10), deadline(20), []string{`spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value`}},
		"deadline removed":  {deadline(10), none, []string{`spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value`}},
		"a deadline far away": {none, deadline(math.MaxInt32 + 1), []string{
			`spec.activeDeadlineSeconds: Invalid value: 2147483648: must be between 1 and 2147483647, inclusive`,
			`spec.activeDeadlineSeconds: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive`,
		}},

		"toleration added": {none, tolerations(v1.Toleration{Key: "a", Operator: v1.TolerationOpExists}), nil},
		"tolerationSeconds changed": {
			tolerations(v1.Toleration{Key: "a", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}),
			tolerations(v1.Toleration{Key: "a", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(1))}), nil,
		},
		"toleration removed": {
			tolerations(v1.Toleration{Key: "a", Operator: v1.TolerationOpExists}), none,
			[]string{`spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds`},
		},

		"grace from -1 to 1": {
			spec(func(spec *v1.PodSpec) { spec.TerminationGracePeriodSeconds = new(int64(-1)) }),
			spec(func(spec *v1.PodSpec) { spec.TerminationGracePeriodSeconds = new(int64(1)) }), nil,
		},
		"grace from 30 to 1": {none, spec(func(spec *v1.PodSpec) { spec.TerminationGracePeriodSeconds = new(int64(1)) }), []string{nothingElse}},

		"gate removed": {gates("a", "b"), gates("b"), nil},
		"duplicate gate": {gates("a"), gates("b", "a", "b"), []string{
			`spec.schedulingGates[2]: Duplicate value: "b"`, `spec.schedulingGates[2].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'`}},
		"gate added":     {gates("a"), gates("a", "b"), []string{`spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'`}},
		"a new selector": {none, selector(map[string]string{"a": "b"}), []string{nothingElse}},
		"a narrower selector while gated": {
			all(gates("g"), selector(map[string]string{"a": "b"})), all(gates("g"), selector(map[string]string{"a": "b", "c": "d"})), nil,
		},
		"another selector while gated": {
			all(gates("g"), selector(map[string]string{"a": "b"})), all(gates("g"), selector(map[string]string{"a": "c"})),
			[]string{`spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)`},
		},
		"a first affinity while gated":    {gates("g"), all(gates("g"), affinity([]string{"a"})), nil},
		"a narrower affinity while gated": {all(gates("g"), affinity([]string{"a"})), all(gates("g"), affinity([]string{"a", "b"})), nil},
		"a wider affinity while gated": {
			all(gates("g"), affinity([]string{"a"})), all(gates("g"), affinity([]string{"a"}, []string{"b"})),
			[]string{terms + `: Invalid value: [{"matchExpressions":[{"key":"a","operator":"Exists"}]},{"matchExpressions":[{"key":"b","operator":"Exists"}]}]: no additions/deletions to non-empty NodeSelectorTerms list are allowed`},
		},
		"another affinity while gated": {
			all(gates("g"), affinity([]string{"a"})), all(gates("g"), affinity([]string{"b"})),
			[]string{terms + `[0]: Invalid value: {"matchExpressions":[{"key":"b","operator":"Exists"}]}: only additions are allowed (no mutations or deletions)`},
		},
		"affinity removed while gated": {
			all(gates("g"), affinity([]string{"a"})), gates("g"),
			[]string{terms + `: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed`},
		},

		"AppArmor": {
			annotate(appArmor, "runtime/default"), annotate(appArmor, "unconfined"),
			[]string{`metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: Forbidden: may not remove or update AppArmor annotations`},
		},
		"mirror": {
			annotate("a", "b"), annotate(v1.MirrorPodAnnotationKey, "x"),
			[]string{`metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, old := validPod(), validPod()
			test.new(pod)
			test.old(old)
			errs := check.Run(func(c *check.Checker) { ValidatePodUpdate(c, pod, old) })
			for _, err := range errs {
				// A readable difference follows.
				err.Detail, _, _ = strings.Cut(err.Detail, "\n")
			}
			checktest.Diff(t, test.want, errs)
		})
	}
}

func TestFinalizersOfDeleted(t *testing.T) {
	pod, old := validPod(), validPod()
	now := metav1.Now()
	pod.DeletionTimestamp, old.DeletionTimestamp = &now, &now
	pod.DeletionGracePeriodSeconds, old.DeletionGracePeriodSeconds = new(int64(30)), new(int64(30))
	pod.Finalizers = []string{"example.com/late"}
	checktest.Diff(t, []string{`metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/late"}`},
		check.Run(func(c *check.Checker) { ValidatePodUpdate(c, pod, old) }))
}
