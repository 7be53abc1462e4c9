// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/cronjob"
	"github.com/kindred-project/kindred/internal/controllers/daemonset"
	"github.com/kindred-project/kindred/internal/controllers/deployment"
	"github.com/kindred-project/kindred/internal/controllers/endpoints"
	"github.com/kindred-project/kindred/internal/controllers/endpointslice"
	"github.com/kindred-project/kindred/internal/controllers/endpointslicemirroring"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/job"
	"github.com/kindred-project/kindred/internal/controllers/localpath"
	"github.com/kindred-project/kindred/internal/controllers/persistentvolume"
	"github.com/kindred-project/kindred/internal/controllers/replicaset"
	"github.com/kindred-project/kindred/internal/controllers/resourceclaim"
	"github.com/kindred-project/kindred/internal/controllers/statefulset"
)

// createTemplate creates a ResourceClaimTemplate with the name of an object.
func createTemplate(w *controltest.World, object client.Object) {
	w.Must(w.API.Create(ctx, &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()},
		Spec:       resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": object.GetName()}}},
	}))
}

// holdCase is a controller, or a part of one, that leaves held objects alone.
type holdCase struct {
	name string
	add  func(control.Env) error
	// object returns the held object.
	object func(meta metav1.ObjectMeta) client.Object
	// prepare, if set, creates the objects that the object needs.
	prepare func(w *controltest.World, object client.Object)
	// handled reports whether the controller has done its work for the object.
	handled func(w *controltest.World, object client.Object) bool
}

var holdCases = []holdCase{{
	name: "Deployment", add: deployment.Add, handled: owns(&appsv1.ReplicaSetList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		d := newDeployment(1, appsv1.RollingUpdateDeploymentStrategyType)
		d.ObjectMeta, d.Spec.Selector, d.Spec.Template = meta, selecting(meta), templateOf(meta)
		return d
	},
}, {
	name: "ReplicaSet", add: replicaset.AddReplicaSets, handled: owns(&corev1.PodList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Selector: selecting(meta), Template: templateOf(meta)}}
	},
}, {
	name: "ReplicationController", add: replicaset.AddReplicationControllers, handled: owns(&corev1.PodList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		template := templateOf(meta)
		return &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(1)), Selector: template.Labels, Template: &template}}
	},
}, {
	name: "DaemonSet", add: daemonset.Add, handled: owns(&corev1.PodList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selecting(meta), Template: templateOf(meta),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}}}
	},
}, {
	name: "StatefulSet", add: statefulset.Add, handled: owns(&corev1.PodList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: selecting(meta), Template: templateOf(meta)}}
	},
}, {
	name: "Job", add: job.Add, handled: owns(&corev1.PodList{}),
	object: func(meta metav1.ObjectMeta) client.Object { return newJob(meta) },
}, {
	name: "CronJob", add: cronjob.Add, handled: owns(&batchv1.JobList{}),
	object: func(meta metav1.ObjectMeta) client.Object { return newCronJob(meta) },
}, {
	name: "a Job in the history of a CronJob", add: cronjob.Add, handled: isGone,
	object: func(meta metav1.ObjectMeta) client.Object { return ended(newJob(meta)) },
	prepare: func(w *controltest.World, object client.Object) {
		cron := ofHistory()
		w.Must(client.IgnoreAlreadyExists(w.API.Create(ctx, cron)))
		w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(cron), cron))
		object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))})
		w.Must(w.API.Update(ctx, object))
	},
}, {
	name: "a Job that has expired", add: job.AddTTL, handled: isGone,
	object: func(meta metav1.ObjectMeta) client.Object {
		j := ended(newJob(meta))
		j.Spec.TTLSecondsAfterFinished = new(int32(0))
		return j
	},
}, {
	name: "pods of a Job that has ended", add: job.Add,
	object: func(meta metav1.ObjectMeta) client.Object { return ended(newJob(meta)) },
	prepare: func(w *controltest.World, object client.Object) {
		pod := trackedPod(metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()})
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(object, batchv1.SchemeGroupVersion.WithKind("Job"))}
		w.Must(w.API.Create(ctx, pod))
	},
	handled: isReleased,
}, {
	name: "a pod that no Job counts", add: job.Add, handled: isReleased,
	object: func(meta metav1.ObjectMeta) client.Object { return trackedPod(meta) },
}, {
	name: "a pod and its ResourceClaims", add: resourceclaim.Add(false), handled: owns(&resourcev1.ResourceClaimList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "r", ResourceClaimTemplateName: &meta.Name}}}}
	},
	prepare: createTemplate,
}, {
	name: "a PodGroup and its ResourceClaims", add: resourceclaim.Add(true), handled: owns(&resourcev1.ResourceClaimList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		return &schedulingv1beta1.PodGroup{ObjectMeta: meta, Spec: schedulingv1beta1.PodGroupSpec{
			ResourceClaims: []schedulingv1beta1.PodGroupResourceClaim{{Name: "r", ResourceClaimTemplateName: &meta.Name}},
		}}
	},
	prepare: createTemplate,
}, {
	name: "a Service and its EndpointSlices", add: endpointslice.Add, object: newService,
	handled: func(w *controltest.World, object client.Object) bool {
		slices := &discoveryv1.EndpointSliceList{}
		w.Must(w.API.List(ctx, slices, client.MatchingLabels{discoveryv1.LabelServiceName: object.GetName()}))
		return len(slices.Items) > 0
	},
}, {
	name: "a Service and its Endpoints", add: endpoints.Add, object: newService,
	handled: func(w *controltest.World, object client.Object) bool {
		//lint:ignore SA1019 Endpoints are deprecated, but still created.
		return w.API.Get(ctx, client.ObjectKeyFromObject(object), &corev1.Endpoints{}) == nil
	},
}, {
	name: "Endpoints and their mirrored EndpointSlices", add: endpointslicemirroring.Add, handled: owns(&discoveryv1.EndpointSliceList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		meta.Labels = map[string]string{"app": meta.Name} // its slices get them
		//lint:ignore SA1019 Endpoints are deprecated, but users still write them.
		return &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}}}}
	},
	prepare: func(w *controltest.World, object client.Object) {
		w.Must(w.API.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}))
	},
}, {
	name: "a pod and its ephemeral claims", add: persistentvolume.AddEphemeral, handled: owns(&corev1.PersistentVolumeClaimList{}),
	object: func(meta metav1.ObjectMeta) client.Object {
		template := &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": meta.Name}}}
		return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
			Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}}}}}}
	},
}, {
	name: "a PersistentVolume whose claim is gone", add: persistentvolume.AddBinder,
	object: func(meta metav1.ObjectMeta) client.Object { return newVolumeOfGoneClaim(meta, corev1.VolumeBound) },
	handled: func(w *controltest.World, object client.Object) bool {
		v := &corev1.PersistentVolume{}
		w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(object), v))
		return v.Status.Phase == corev1.VolumeReleased
	},
}, {
	name: "a released PersistentVolume", add: localpath.Add(localpath.Nodes{Simulated: "simulated"}), handled: isGone,
	object: func(meta metav1.ObjectMeta) client.Object { return newVolumeOfGoneClaim(meta, corev1.VolumeReleased) },
}}

// newVolumeOfGoneClaim returns a volume that the provisioner of local volumes made on a simulated node.
func newVolumeOfGoneClaim(meta metav1.ObjectMeta, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	meta.Namespace = ""
	meta.Annotations = maps.Clone(meta.Annotations)
	metav1.SetMetaDataAnnotation(&meta, volume.AnnDynamicallyProvisioned, localpath.Provisioner)
	return &corev1.PersistentVolume{
		ObjectMeta: meta,
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/simulated/" + meta.Name}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "ns", Name: meta.Name, UID: "gone"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
}

func selecting(meta metav1.ObjectMeta) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": meta.Name}}
}

func templateOf(meta metav1.ObjectMeta) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": meta.Name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}, RestartPolicy: corev1.RestartPolicyNever},
	}
}

func newJob(meta metav1.ObjectMeta) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
		Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(6)), Selector: selecting(meta), Template: templateOf(meta)}}
}

// newCronJob returns a CronJob that was created before its last time.
func newCronJob(meta metav1.ObjectMeta) *batchv1.CronJob {
	meta.CreationTimestamp = metav1.NewTime(controltest.Start)
	return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "@hourly", JobTemplate: batchv1.JobTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": meta.Name}}, Spec: newJob(meta).Spec}}}
}

// ofHistory returns a CronJob that keeps no finished Jobs.
func ofHistory() *batchv1.CronJob {
	cron := newCronJob(metav1.ObjectMeta{Namespace: "ns", Name: "history"})
	cron.Spec.Suspend, cron.Spec.SuccessfulJobsHistoryLimit = new(true), new(int32(0))
	return cron
}

func ended(j *batchv1.Job) *batchv1.Job {
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(controltest.Start)}}
	return j
}

func trackedPod(meta metav1.ObjectMeta) *corev1.Pod {
	meta.Finalizers = []string{batchv1.JobTrackingFinalizer}
	return &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
}

func newService(meta metav1.ObjectMeta) client.Object {
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": meta.Name},
		ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}}
}

// owns returns a function that reports whether an object controls one of the listed kind.
func owns(of client.ObjectList) func(*controltest.World, client.Object) bool {
	return func(w *controltest.World, owner client.Object) bool {
		found := of.DeepCopyObject().(client.ObjectList)
		w.Must(w.API.List(ctx, found, client.MatchingLabels{"app": owner.GetName()}))
		owned := false
		w.Must(meta.EachListItem(found, func(item runtime.Object) error {
			owned = owned || metav1.IsControlledBy(item.(client.Object), owner)
			return nil
		}))
		return owned
	}
}

func isGone(w *controltest.World, object client.Object) bool {
	return apierrors.IsNotFound(w.API.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object)))
}

// isReleased reports whether the pod of that name has lost the finalizer of Jobs.
func isReleased(w *controltest.World, object client.Object) bool {
	pod := &corev1.Pod{}
	w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(object), pod))
	return len(pod.Finalizers) == 0
}

// Two similar objects exist when the controller starts, and one of them is held. The controller lists
// both, so when it has handled the other one, it has had the chance to handle the held one.
func TestHeldObjectIsLeftAlone(t *testing.T) {
	for _, tt := range holdCases {
		t.Run(tt.name, func(t *testing.T) {
			w := controltest.New(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
			create := func(meta metav1.ObjectMeta) client.Object {
				meta.Namespace = "ns"
				object := tt.object(meta)
				w.Must(w.API.Create(ctx, object))
				if tt.prepare != nil {
					tt.prepare(w, object)
				}
				return object
			}
			held := create(metav1.ObjectMeta{Name: "a", Annotations: map[string]string{ownership.HoldAnnotation: "test"}})
			free := create(metav1.ObjectMeta{Name: "b"})
			w.Run(t, control.Controller{Add: tt.add})

			eventually(t, "the other object is handled", func() bool { return tt.handled(w, free) })
			if tt.handled(w, held) {
				t.Error("the held object was handled")
			}
			now := held.DeepCopyObject().(client.Object)
			w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(held), now))
			if now.GetResourceVersion() != held.GetResourceVersion() {
				t.Errorf("the held object was written: %+v", now)
			}
			annotations := now.GetAnnotations()
			delete(annotations, ownership.HoldAnnotation)
			now.SetAnnotations(annotations)
			w.Must(w.API.Update(ctx, now))
			eventually(t, "the object is handled after its hold was removed", func() bool { return tt.handled(w, held) })
		})
	}
}
