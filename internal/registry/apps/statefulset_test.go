// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func claimTemplate(name, size string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
	}}
}

func newStatefulSet(t *testing.T, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	t.Helper()
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"}, Spec: appsv1.StatefulSetSpec{Selector: selector(), Template: template()}}
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("data", "1Gi")}
	defaulting(t).Default(s)
	change(s)
	return s
}

func TestStatefulSet(t *testing.T) {
	rolling := func(partition int32, unavailable intstr.IntOrString) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: &unavailable}
		}
	}
	for name, test := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   []string
	}{
		"good":                     {func(*appsv1.StatefulSet) {}, nil},
		"parallel":                 {func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = "Parallel" }, nil},
		"management":               {func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = "Random" }, []string{`spec.podManagementPolicy: Invalid value: "Random": must be 'OrderedReady' or 'Parallel'`}},
		"no pod management policy": {func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = "" }, []string{"spec.podManagementPolicy: Required value"}},
		"partition":                {rolling(-1, intstr.FromInt32(1)), []string{"spec.updateStrategy.rollingUpdate.partition: Invalid value: -1"}},
		"maxUnavailable 0":         {rolling(0, intstr.FromString("0%")), []string{`spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "0%": cannot be 0`}},
		"too many":                 {rolling(0, intstr.FromString("101%")), []string{`spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`}},
		"on delete, rolling":       {func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = "OnDelete" }, []string{"spec.updateStrategy.rollingUpdate: Invalid value: {\"partition\":0,\"maxUnavailable\":1}: only allowed for updateStrategy 'RollingUpdate'"}},
		"alpha strategy":           {func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = "Recreate" }, []string{"spec.updateStrategy: Invalid value: {\"type\":\"Recreate\",\"rollingUpdate\":{\"partition\":0,\"maxUnavailable\":1}}: must be 'RollingUpdate' or 'OnDelete'"}},
		"no strategy":              {func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = "" }, []string{"spec.updateStrategy: Required value"}},
		"retention": {func(s *appsv1.StatefulSet) { s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = "Keep" },
			[]string{`spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Keep": supported values: "Retain", "Delete"`}},
		"replicas":                 {func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(-1)) }, []string{"spec.replicas: Invalid value: -1"}},
		"ordinals":                 {func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: -1} }, []string{"spec.ordinals.start: Invalid value: -1"}},
		"negative minReadySeconds": {func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = -1 }, []string{"spec.minReadySeconds: Invalid value: -1"}},
		"history":                  {func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(int32(-1)) }, nil},
		"service":                  {func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "a.b" }, []string{`spec.serviceName: Invalid value: "a.b": must not contain dots`}},
		"empty selector":           {func(s *appsv1.StatefulSet) { s.Spec.Selector = &metav1.LabelSelector{} }, []string{"spec.selector: Invalid value: {}: empty selector is invalid for statefulset"}},
		"no selector":              {func(s *appsv1.StatefulSet) { s.Spec.Selector = nil }, []string{"spec.selector: Required value", "spec.template.metadata.labels: Invalid value"}},
		"restart policy Never":     {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.RestartPolicy = "Never" }, []string{`spec.template.spec.restartPolicy: Unsupported value: "Never"`}},
		"active deadline":          {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(5)) }, []string{"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported"}},
		"names that the controller overwrites": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Hostname, s.Spec.Template.Spec.Subdomain = "A B", "C D"
		}, nil},
		"mount of a claim template": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
		}, nil},
		"mount of an unknown volume": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs"}}
		}, []string{`spec.template.spec.containers[0].volumeMounts[0].name: Not found: "logs"`}},
		"claim": {func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates[0] = claimTemplate("data", "0") },
			[]string{`spec.volumeClaimTemplates[0].spec.resources[storage]: Invalid value: "0": must be greater than zero`}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), StatefulSet.Validate, newStatefulSet(t, test.change)), test.want...)
	}
}

func TestStatefulSetUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		was, change func(*appsv1.StatefulSet)
		want        []string
	}{
		"scaled": {nil, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) }, nil},
		"allowed changes": {nil, func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].Image = "j"
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: "OnDelete"}
			s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = "Delete"
			s.Spec.MinReadySeconds, s.Spec.Ordinals = 3, &appsv1.StatefulSetOrdinals{Start: 2}
		}, nil},
		"forbidden changes": {nil, func(s *appsv1.StatefulSet) {
			s.Spec.Selector.MatchLabels["c"], s.Spec.Template.Labels["c"] = "d", "d"
			s.Spec.VolumeClaimTemplates[0] = claimTemplate("data", "2Gi")
			s.Spec.ServiceName, s.Spec.PodManagementPolicy = "other", "Parallel"
		}, []string{"spec.selector: Invalid value", "spec.volumeClaimTemplates: Invalid value", "spec.serviceName: Invalid value", "spec.podManagementPolicy: Invalid value"}},
		"template already invalid": {func(s *appsv1.StatefulSet) {
			s.Spec.ServiceName, s.Spec.Template.Spec.Containers = "A B", nil
			s.Spec.VolumeClaimTemplates[0] = claimTemplate("data", "0")
		}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) }, nil},
		"template becomes invalid": {nil, func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers = nil }, []string{"spec.template.spec.containers: Required value"}},
	} {
		if test.was == nil {
			test.was = func(*appsv1.StatefulSet) {}
		}
		old := newStatefulSet(t, test.was)
		s := old.DeepCopy()
		test.change(s)
		wantErrors(t, name, checktest.UpdateErrors(t.Context(), StatefulSet.ValidateUpdate, s, old), test.want...)
	}
}

func TestStatefulSetStatus(t *testing.T) {
	for name, test := range map[string]struct {
		status appsv1.StatefulSetStatus
		want   []string
	}{
		"good":     {appsv1.StatefulSetStatus{Replicas: 3, ReadyReplicas: 2, CurrentReplicas: 3, UpdatedReplicas: 3, AvailableReplicas: 1, CollisionCount: new(int32(2))}, nil},
		"too many": {appsv1.StatefulSetStatus{CurrentReplicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, CollisionCount: new(int32(2))}, []string{"status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas", "status.availableReplicas: Invalid value: 1: cannot be greater than status.replicas", "status.currentReplicas: Invalid", "status.updatedReplicas: Invalid"}},
		"negative": {appsv1.StatefulSetStatus{ObservedGeneration: -1, ReadyReplicas: -1, CollisionCount: new(int32(-1))}, []string{"status.availableReplicas: Invalid value: 0: cannot be greater than status.readyReplicas", "status.collisionCount: Invalid value: -1: cannot be decremented", "status.collisionCount: Invalid value: -1: must be", "status.observedGeneration: Invalid", "status.readyReplicas: Invalid"}},
	} {
		old := &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{CollisionCount: new(int32(2))}}
		wantErrors(t, name, checktest.UpdateErrors(t.Context(), StatefulSet.StatusUpdate.Validate, &appsv1.StatefulSet{Status: test.status}, old), test.want...)
	}
}

func TestStatefulSetWarnings(t *testing.T) {
	old := newStatefulSet(t, func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates[0] = claimTemplate("data", "1500m")
		s.Spec.RevisionHistoryLimit = new(int32(-1))
		s.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}, {Name: "A"}}
	})
	const history = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
	created := StatefulSet.Warnings(t.Context(), old, nil)
	if len(created) != 3 || created[1] != `spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer` || created[2] != history {
		t.Errorf("created: %q", created)
	}
	want := []string{`spec.volumeClaimTemplates[0].Spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`, history}
	if got := StatefulSet.Warnings(t.Context(), old.DeepCopy(), old); !slices.Equal(got, want) {
		t.Errorf("unchanged: %q", got)
	}
}

func TestClaimTemplatesHaveKind(t *testing.T) {
	s := newStatefulSet(t, func(*appsv1.StatefulSet) {})
	if got := s.Spec.VolumeClaimTemplates[0]; got.APIVersion != "v1" || got.Kind != "PersistentVolumeClaim" || got.Status.Phase != corev1.ClaimPending {
		t.Errorf("%+v", got)
	}
}
