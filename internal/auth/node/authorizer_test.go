// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// fullPod returns a pod with a reference of each kind.
func fullPod(node string) *corev1.Pod {
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	secretEnv := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local(name)}}}}
	}
	volume := func(name string, source corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: source}
	}
	return &corev1.Pod{
		ObjectMeta: meta("app", "full"),
		Spec: corev1.PodSpec{
			NodeName:           node,
			ServiceAccountName: "runner",
			ImagePullSecrets:   []corev1.LocalObjectReference{local("s-pull")},
			InitContainers:     []corev1.Container{{Env: secretEnv("s-init-env")}},
			Containers: []corev1.Container{{
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("s-from")}}, {ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("c-from")}}},
				Env:     append(secretEnv("s-env"), corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("c-env")}}}),
			}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: secretEnv("s-debug")}}},
			Volumes: []corev1.Volume{
				volume("1", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s-vol"}}),
				volume("2", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c-vol")}}),
				volume("3", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{LocalObjectReference: local("s-proj")}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("c-proj")}}}}}),
				volume("4", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}),
				volume("scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
				volume("5", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: ptr.To(local("s-csi"))}}),
				volume("6", corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s-azure"}}),
				volume("7", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
				volume("8", corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: ptr.To(local("s-vol"))}}),
			},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: ptr.To("gpu")}, {Name: "b", ResourceClaimTemplateName: ptr.To("tmpl")}},
		},
		Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: ptr.To("made")}, {Name: "c"}}},
	}
}

func TestReferencesOf(t *testing.T) {
	want := References{
		Secrets:        []string{"s-azure", "s-csi", "s-debug", "s-env", "s-from", "s-init-env", "s-proj", "s-pull", "s-vol"},
		ConfigMaps:     []string{"c-env", "c-from", "c-proj", "c-vol"},
		Claims:         []string{"claim", "full-scratch"},
		ResourceClaims: []string{"gpu", "made"},
		ServiceAccount: "runner",
	}
	if diff := cmp.Diff(want, ReferencesOf(fullPod("n1"))); diff != "" {
		t.Error(diff)
	}
}

type stores struct {
	factory    informers.SharedInformerFactory
	authorizer *Authorizer
}

func newStores(t *testing.T, all bool) *stores {
	t.Helper()
	f := informers.NewSharedInformerFactory(nil, 0)
	sources := Sources{Pods: f.Core().V1().Pods()}
	if all {
		sources.PersistentVolumes = f.Core().V1().PersistentVolumes()
		sources.VolumeAttachments = f.Storage().V1().VolumeAttachments()
		sources.ResourceSlice = f.Resource().V1().ResourceSlices().Lister().Get
		sources.PodCertificateRequests = f.Certificates().V1().PodCertificateRequests()
	}
	a, err := NewAuthorizer(sources)
	if err != nil {
		t.Fatal(err)
	}
	return &stores{factory: f, authorizer: a}
}

func add(t *testing.T, informer cache.SharedIndexInformer, obj any) {
	t.Helper()
	if err := informer.GetIndexer().Add(obj); err != nil {
		t.Fatal(err)
	}
}

// request parses "get app/secrets/name", "update -/nodes.status/n1" or
// "list app/pods/?spec.nodeName=n1". Resources outside the core group get their group.
func request(t *testing.T, node, text string) authorizer.AttributesRecord {
	t.Helper()
	verb, rest, _ := strings.Cut(text, " ")
	path, selector, _ := strings.Cut(rest, "?")
	parts := strings.Split(path, "/")
	resource, subresource, _ := strings.Cut(parts[1], ".")
	r := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "system:node:" + node, Groups: []string{user.NodesGroup, user.AllAuthenticated}},
		Verb: verb, Namespace: strings.Trim(parts[0], "-"), Resource: resource, Subresource: subresource, Name: parts[2], ResourceRequest: true,
	}
	r.APIGroup = map[string]string{
		"leases": "coordination.k8s.io", "csinodes": "storage.k8s.io", "volumeattachments": "storage.k8s.io", "csidrivers": "storage.k8s.io",
		"resourceslices": "resource.k8s.io", "resourceclaims": "resource.k8s.io", "podcertificaterequests": "certificates.k8s.io", "deployments": "apps",
	}[resource]
	if selector != "" {
		s, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		r.FieldSelectorRequirements = s.Requirements()
	}
	return r
}

const unrelated = "no relationship found between node 'n1' and this object"

func TestAuthorize(t *testing.T) {
	s := newStores(t, true)
	core := s.factory.Core().V1()
	add(t, core.Pods().Informer(), fullPod("n1"))
	add(t, core.Pods().Informer(), &corev1.Pod{ObjectMeta: meta("app", "elsewhere"), Spec: corev1.PodSpec{NodeName: "n2",
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s-other"}}}})
	add(t, core.Pods().Informer(), &corev1.Pod{ObjectMeta: meta("app", "pending"), Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s-pending"}}}})
	mirror := &corev1.Pod{ObjectMeta: meta("app", "mirror"), Spec: corev1.PodSpec{NodeName: "n1", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s-mirror"}}}}
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	add(t, core.Pods().Informer(), mirror)
	pv := func(name, claim string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: meta("", name), Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "app", Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				NodeStageSecretRef:         &corev1.SecretReference{Namespace: "storage", Name: "stage-" + name},
				ControllerPublishSecretRef: &corev1.SecretReference{Namespace: "storage", Name: "controller-" + name},
			}}}}
	}
	add(t, core.PersistentVolumes().Informer(), pv("pv1", "claim"))
	add(t, core.PersistentVolumes().Informer(), pv("pv2", "other-claim"))
	add(t, core.PersistentVolumes().Informer(), &corev1.PersistentVolume{ObjectMeta: meta("", "free")})
	for _, node := range []string{"n1", "n2"} {
		add(t, s.factory.Storage().V1().VolumeAttachments().Informer(), &storagev1.VolumeAttachment{ObjectMeta: meta("", "va-"+node), Spec: storagev1.VolumeAttachmentSpec{NodeName: node}})
		add(t, s.factory.Resource().V1().ResourceSlices().Informer(), &resourcev1.ResourceSlice{ObjectMeta: meta("", "slice-"+node), Spec: resourcev1.ResourceSliceSpec{NodeName: ptr.To(node)}})
		pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: meta("app", "pcr-"+node)}
		pcr.Spec.NodeName = "n2"
		if node == "n1" {
			pcr.Spec.NodeName = "n1"
		}
		add(t, s.factory.Certificates().V1().PodCertificateRequests().Informer(), pcr)
	}
	add(t, s.factory.Resource().V1().ResourceSlices().Informer(), &resourcev1.ResourceSlice{ObjectMeta: meta("", "slice-shared")})

	tests := []struct {
		request string
		reason  string // "" means allowed; "-" refused without a reason
	}{
		{"get app/secrets/s-pull", ""}, {"get app/secrets/s-init-env", ""}, {"get app/secrets/s-debug", ""}, {"watch app/secrets/s-proj", ""}, {"list app/secrets/s-csi", ""},
		{"get app/secrets/s-other", unrelated},
		{"get app/secrets/s-pending", unrelated},
		{"get app/secrets/s-mirror", unrelated},
		{"get other/secrets/s-pull", unrelated},
		{"list app/secrets/", "No Object name found"},
		{"list -/secrets/", "can only read namespaced object of this type"},
		{"update app/secrets/s-pull", "can only read resources of this type"},
		{"get app/secrets.x/s-pull", "cannot read subresource"},
		{"get storage/secrets/stage-pv1", ""},
		{"get storage/secrets/stage-pv2", unrelated},
		{"get storage/secrets/controller-pv1", unrelated},
		{"get app/configmaps/c-vol", ""}, {"get app/configmaps/c-env", ""}, {"get app/configmaps/other", unrelated},
		{"get app/persistentvolumeclaims/claim", ""}, {"get app/persistentvolumeclaims/full-scratch", ""}, {"get app/persistentvolumeclaims/other", unrelated},
		{"list app/persistentvolumeclaims/claim", "can only get individual resources of this type"},
		{"patch app/persistentvolumeclaims.status/claim", ""}, {"patch app/persistentvolumeclaims.status/other", unrelated},
		{"get app/persistentvolumeclaims.status/claim", "can only get/update/patch this type"},
		{"get -/persistentvolumes/pv1", ""}, {"get -/persistentvolumes/pv2", unrelated}, {"get -/persistentvolumes/free", unrelated}, {"get -/persistentvolumes/gone", unrelated},
		{"get app/resourceclaims/gpu", ""}, {"get app/resourceclaims/made", ""}, {"get app/resourceclaims/tmpl", unrelated},
		{"get -/volumeattachments/va-n1", ""}, {"get -/volumeattachments/va-n2", unrelated},
		{"get app/serviceaccounts/runner", ""}, {"get app/serviceaccounts/other", unrelated},
		{"create app/serviceaccounts.token/runner", ""}, {"create app/serviceaccounts.token/other", unrelated},
		{"create app/serviceaccounts.token/", "can only create tokens for individual service accounts"},
		{"create app/serviceaccounts/runner", "can only create token subresource of serviceaccount"},
		{"delete app/serviceaccounts/runner", "can only create tokens for individual service accounts"},
		{"get kube-node-lease/leases/n1", ""}, {"create kube-node-lease/leases/", ""}, {"update kube-node-lease/leases/n2", "can only access node lease with the same name as the requesting node"},
		{"get kube-system/leases/n1", `can only access leases in the "kube-node-lease" system namespace`},
		{"list kube-node-lease/leases/", "can only get, create, update, patch, or delete a node lease"},
		{"get -/csinodes/n1", ""}, {"create -/csinodes/", ""}, {"get -/csinodes/n2", "can only access CSINode with the same name as the requesting node"},
		{"list -/csinodes/", "can only get, create, update, patch, or delete a CSINode"}, {"get -/csinodes.status/n1", "cannot authorize CSINode subresources"},
		{"create -/resourceslices/", ""}, {"delete -/resourceslices/slice-n1", ""}, {"delete -/resourceslices/slice-n2", unrelated}, {"get -/resourceslices/slice-shared", unrelated},
		{"watch -/resourceslices/?spec.nodeName=n1", ""}, {"deletecollection -/resourceslices/?spec.nodeName=n2", "can only list/watch/deletecollection resourceslices with nodeName field selector"},
		{"get -/nodes/n1", ""}, {"list -/nodes/n1", ""}, {"patch -/nodes/n1", ""}, {"update -/nodes.status/n1", ""}, {"get -/nodes.proxy/n1", "-"}, {"delete -/nodes/n1", "-"},
		{"get -/nodes/n2", "node 'n1' cannot read 'n2', only its own Node object"}, {"list -/nodes/", "node 'n1' cannot read all nodes, only its own Node object"},
		{"get app/pods/full", ""}, {"get app/pods/mirror", ""}, {"get app/pods/elsewhere", unrelated}, {"get app/pods/pending", unrelated},
		{"list -/pods/?spec.nodeName=n1", ""}, {"watch app/pods/full", ""},
		{"list -/pods/?spec.nodeName=n2", "can only list/watch pods with spec.nodeName field selector"},
		{"list -/pods/?spec.nodeName!=n1", "can only list/watch pods with spec.nodeName field selector"},
		{"create app/pods/", ""}, {"delete app/pods/full", ""}, {"update app/pods/full", "-"}, {"patch app/pods.status/full", ""}, {"create app/pods.eviction/full", ""}, {"get app/pods.log/full", "-"},
		{"create app/podcertificaterequests/", ""}, {"get app/podcertificaterequests/pcr-n1", ""}, {"get app/podcertificaterequests/pcr-n2", unrelated},
		{"list -/podcertificaterequests/?spec.nodeName=n1", ""}, {"list -/podcertificaterequests/", "can only list/watch podcertificaterequests with nodeName field selector"},
		{"delete app/podcertificaterequests/pcr-n1", "nodes may not delete podcertificaterequests"},
		{"update app/podcertificaterequests.status/pcr-n1", "nodes may not access the status subresource of PodCertificateRequests"},
		{"list -/services/", ""}, {"watch -/csidrivers/", ""}, {"create app/events/", ""}, {"create app/services/", "-"}, {"get app/deployments/web", "-"},
	}
	for _, tt := range tests {
		t.Run(tt.request, func(t *testing.T) {
			decision, reason, err := s.authorizer.Authorize(context.Background(), request(t, "n1", tt.request))
			if err != nil {
				t.Fatal(err)
			}
			if allowed := decision == authorizer.DecisionAllow; allowed != (tt.reason == "") {
				t.Fatalf("%v (%s), want %q", decision, reason, tt.reason)
			}
			if decision == authorizer.DecisionDeny {
				t.Error("denied, although RBAC must still be consulted")
			}
			if reason != strings.Trim(tt.reason, "-") {
				t.Errorf("reason %q, want %q", reason, tt.reason)
			}
		})
	}
}

func TestUnservedResourcesAreNotAuthorized(t *testing.T) {
	s := newStores(t, false)
	add(t, s.factory.Core().V1().Pods().Informer(), fullPod("n1"))
	for _, text := range []string{"get -/persistentvolumes/pv1", "get storage/secrets/stage-pv1", "get -/volumeattachments/va", "get -/resourceslices/s", "get app/podcertificaterequests/p"} {
		if decision, reason, _ := s.authorizer.Authorize(context.Background(), request(t, "n1", text)); decision != authorizer.DecisionNoOpinion || reason != unrelated {
			t.Errorf("%s: %v %q", text, decision, reason)
		}
	}
}

func TestAccessEndsWithThePod(t *testing.T) {
	s := newStores(t, false)
	store := s.factory.Core().V1().Pods().Informer().GetIndexer()
	get := request(t, "n1", "get app/secrets/s-debug")
	allowed := func() bool {
		decision, _, _ := s.authorizer.Authorize(context.Background(), get)
		return decision == authorizer.DecisionAllow
	}
	withoutDebug := fullPod("n1")
	withoutDebug.Spec.EphemeralContainers = nil
	unscheduled := fullPod("")
	for _, step := range []struct {
		name   string
		change func() error
		want   bool
	}{
		{"unscheduled", func() error { return store.Add(unscheduled) }, false},
		{"bound", func() error { return store.Update(withoutDebug) }, false},
		{"debugged", func() error { return store.Update(fullPod("n1")) }, true},
		{"recreated elsewhere", func() error { return store.Update(fullPod("n2")) }, false},
		{"back", func() error { return store.Update(fullPod("n1")) }, true},
		{"deleted", func() error { return store.Delete(fullPod("n1")) }, false},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		if got := allowed(); got != step.want {
			t.Errorf("%s: allowed %v, want %v", step.name, got, step.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	s := newStores(t, false)
	tests := []struct {
		user   user.Info
		name   string
		node   bool
		reason string
	}{
		{nil, "", false, ""},
		{&user.DefaultInfo{Name: "system:node:n1"}, "", false, ""},
		{&user.DefaultInfo{Name: "bob", Groups: []string{user.NodesGroup}}, "bob", false, ""},
		{&user.DefaultInfo{Name: "system:node:", Groups: []string{user.NodesGroup}}, "", true, `unknown node for user "system:node:"`},
		{&user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}, "n1", true, ""},
	}
	for _, tt := range tests {
		name, ok := Identity(tt.user)
		if ok != tt.node || ok && name != tt.name {
			t.Errorf("%v: %q, %v", tt.user, name, ok)
		}
		r := request(t, "n1", "get -/nodes/n1")
		r.User = tt.user
		decision, reason, _ := s.authorizer.Authorize(context.Background(), r)
		if allowed := decision == authorizer.DecisionAllow; allowed != (tt.node && tt.name != "") || reason != tt.reason {
			t.Errorf("%v: %v %q", tt.user, decision, reason)
		}
		_, _, incomplete, err := s.authorizer.RulesFor(context.Background(), tt.user, "ns")
		if incomplete != tt.node || (err != nil) != tt.node {
			t.Errorf("%v: rules incomplete %v, error %v", tt.user, incomplete, err)
		}
	}
}
