// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package noderestriction

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

var n1 = &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")}
}

func podOn(node, name string, volumes ...corev1.VolumeSource) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: named("app", name), Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "web"}}
	for _, source := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	}
	return p
}

func projected(sources ...corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
}

func newPlugin(t *testing.T) *Plugin {
	t.Helper()
	csiVolume := &corev1.PersistentVolume{ObjectMeta: named("", "pv")}
	csiVolume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver"}
	mirror := podOn("n1", "mirror")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	known := []runtime.Object{
		podOn("n1", "p1", projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}},
			corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "v", Audience: "vault"}},
			corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/signer"}})),
		podOn("n1", "csi", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "driver"}}),
		podOn("n1", "claims", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}),
		podOn("n2", "p2"), mirror,
		&corev1.Node{ObjectMeta: named("", "n1")},
	}
	live := append(known,
		podOn("n1", "fresh"),
		&corev1.ServiceAccount{ObjectMeta: named("app", "web")},
		&corev1.PersistentVolumeClaim{ObjectMeta: named("app", "c"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}, csiVolume,
		&storagev1.CSIDriver{ObjectMeta: named("", "driver"), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "csi"}}}},
	)
	factory := informers.NewSharedInformerFactory(nil, 0)
	p := New()
	p.SetExternalKubeInformerFactory(factory)
	p.SetExternalKubeClientSet(fake.NewClientset(live...))
	p.SetUnconditionalAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		switch a.GetVerb() + " " + a.GetResource() + " " + a.GetName() {
		case "request-serviceaccounts-token-audience granted web", "request-serviceaccounts-podcertificate-signer granted.com:signer web":
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	for _, obj := range known {
		store := factory.Core().V1().Pods().Informer().GetIndexer()
		if _, ok := obj.(*corev1.Node); ok {
			store = factory.Core().V1().Nodes().Informer().GetIndexer()
		}
		if err := store.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p
}

type testCase struct {
	name    string
	request admissiontest.Request
	want    string // part of the error; "" if admitted
}

func run(t *testing.T, tests []testCase) {
	t.Helper()
	plugin := newPlugin(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.request.User == nil {
				tt.request.User = n1
			}
			err := plugin.Admit(context.Background(), tt.request.Attributes(), nil)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// mirror returns a request of n1 for a mirror pod that it may create, modified by edit.
func mirror(edit func(*corev1.Pod)) admissiontest.Request {
	p := &corev1.Pod{ObjectMeta: named("app", "static"), Spec: corev1.PodSpec{NodeName: "n1"}}
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n1-uid", Controller: ptr.To(true)}}
	if edit != nil {
		edit(p)
	}
	return admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: p}
}

func TestMirrorPods(t *testing.T) {
	const other = `node "n1" can only create pods with an owner reference set to itself`
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	run(t, []testCase{
		{"a mirror pod", mirror(nil), ""},
		{"another pod", mirror(func(p *corev1.Pod) { p.Annotations = nil }), `pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		{"on another node", mirror(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), `node "n1" can only create pods with spec.nodeName set to itself`},
		{"without owner", mirror(func(p *corev1.Pod) { p.OwnerReferences = nil }), other},
		{"with two owners", mirror(func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) }), "single owner reference set to itself"},
		{"owned by another node", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "n2" }), other},
		{"owned by another kind", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Pod" }), other},
		{"not controlled", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), "controller owner reference set to itself"},
		{"blocking", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true) }), "must not set blockOwnerDeletion"},
		{"owned by a replaced node", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "old" }), "node n1 UID mismatch: expected old got n1-uid"},
		{"with an account", mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "web" }), `node "n1" can not create pods that reference serviceaccounts`},
		{"with a secret", mirror(volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})), "reference secrets"},
		{"with a nameless secret", mirror(volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}})), "reference secrets (via secret volumes)"},
		{"with a configmap", mirror(func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}}}
		}), "reference configmaps"},
		{"with a resource claim", mirror(func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}} }), "reference resourceclaims"},
		{"with a claim", mirror(volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}})), "reference persistentvolumeclaims"},
		{"with a CSI driver", mirror(volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}})), "reference csidrivers (via CSI volumes)"},
		{"with a token", mirror(volume(projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}))), "reference serviceaccounts (via projected volumes)"},
		{"with a trust bundle", mirror(volume(projected(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}))), "reference clustertrustbundles"},
		{"with an unknown volume", mirror(volume(corev1.VolumeSource{})), `unknown volume type for volume  "v"`},
		{"with an unknown source", mirror(volume(projected(corev1.VolumeProjection{}))), `unknown source for projected volume "v"`},
		{"with a host path", mirror(volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}})), ""},
		{"with downward API fields", mirror(volume(projected(corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}))), ""},
	})
}

func TestPods(t *testing.T) {
	own, foreign := podOn("n1", "p1"), podOn("n2", "p2")
	status := func(old *corev1.Pod, edit func(*corev1.Pod)) admissiontest.Request {
		p := old.DeepCopy()
		edit(p)
		return admissiontest.Request{Operation: admission.Update, Resource: "pods/status", Old: old, Object: p}
	}
	evict := func(name string) admissiontest.Request {
		return admissiontest.Request{Operation: admission.Create, Resource: "pods/eviction", Object: &policyv1.Eviction{ObjectMeta: named("app", name)}}
	}
	run(t, []testCase{
		{"delete its own", admissiontest.Request{Operation: admission.Delete, Resource: "pods", Old: own}, ""},
		{"delete another's", admissiontest.Request{Operation: admission.Delete, Resource: "pods", Old: foreign}, `node "n1" can only delete pods with spec.nodeName set to itself`},
		{"update", admissiontest.Request{Operation: admission.Update, Resource: "pods", Object: own, Old: own}, `unexpected operation "UPDATE", node "n1" can only create and delete mirror pods`},
		{"exec", admissiontest.Request{Operation: admission.Create, Resource: "pods/exec", Object: own}, `unexpected pod subresource "exec"`},
		{"its status", status(own, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), ""},
		{"another's status", status(foreign, func(*corev1.Pod) {}), "can only update pod status for pods with spec.nodeName set to itself"},
		{"labels with the status", status(own, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), `node "n1" cannot update labels through pod status`},
		{"claims with the status", status(own, func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "x"}}
		}), "cannot update resource claim statues"},
		{"extended claims with the status", status(own, func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}
		}), "cannot update extended resource claim status"},
		{"create a status", admissiontest.Request{Operation: admission.Create, Resource: "pods/status", Object: own}, `unexpected operation "CREATE"`},
		{"evict its own", evict("p1"), ""},
		{"evict a pod that is not cached", evict("fresh"), ""},
		{"evict another's", evict("p2"), "node n1 can only evict pods with spec.nodeName set to itself"},
		{"evict a missing pod", evict("gone"), `pods "gone" not found`},
	})
}

func setConfigSource(n *corev1.Node) {
	//lint:ignore SA1019 Deprecated, but still refused.
	n.Spec.ConfigSource = &corev1.NodeConfigSource{}
}

func TestNodes(t *testing.T) {
	node := func(edit func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
			"kubernetes.io/hostname": "n1", "node.kubernetes.io/x": "1", "kubelet.kubernetes.io/y": "1", "disk": "ssd", "example.com/role": "db", "topology.kubernetes.io/zone": "z"}}}
		if edit != nil {
			edit(n)
		}
		return n
	}
	create := func(edit func(*corev1.Node)) admissiontest.Request {
		return admissiontest.Request{Operation: admission.Create, Resource: "nodes", Object: node(edit)}
	}
	update := func(edit func(*corev1.Node)) admissiontest.Request {
		return admissiontest.Request{Operation: admission.Update, Resource: "nodes", Old: node(nil), Object: node(edit)}
	}
	label := func(key string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[key] = "new" } }
	run(t, []testCase{
		{"register", create(nil), ""},
		{"register with taints", create(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }), ""},
		{"register as another", create(func(n *corev1.Node) { n.Name = "n2" }), `node "n1" is not allowed to modify node "n2"`},
		{"register with a role", create(label("node-role.kubernetes.io/master")), `node "n1" is not allowed to set the following labels: node-role.kubernetes.io/master`},
		{"register with a restricted label", create(label("team.node-restriction.kubernetes.io/pci")), "not allowed to set the following labels"},
		{"register with a config source", create(setConfigSource), "non-nil configSource"},
		{"update its own labels", update(label("disk")), ""},
		{"update its zone", update(label("topology.kubernetes.io/zone")), ""},
		{"update labels of Kubernetes", update(func(n *corev1.Node) { label("b.k8s.io/x")(n); label("a.kubernetes.io/x")(n) }), "is not allowed to modify labels: a.kubernetes.io/x, b.k8s.io/x"},
		{"remove a label that it may set", update(func(n *corev1.Node) { delete(n.Labels, "node.kubernetes.io/x") }), ""},
		{"update taints", update(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }), "is not allowed to modify taints"},
		{"update owners", update(func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), "is not allowed to modify ownerReferences"},
		{"update the config source", update(setConfigSource), "is not allowed to update configSource"},
		{"delete itself", admissiontest.Request{Operation: admission.Delete, Resource: "nodes", Old: node(nil)}, ""},
		{"status of another", admissiontest.Request{Operation: admission.Update, Resource: "nodes/status", Object: node(nil), Old: node(nil), Name: "n2"}, `is not allowed to modify node "n2"`},
	})
}

func TestOwnObjects(t *testing.T) {
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: named(namespace, name)}
	}
	csiNode := func(name string) *storagev1.CSINode { return &storagev1.CSINode{ObjectMeta: named("", name)} }
	slice := func(node *string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{ObjectMeta: named("", "s"), Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
	}
	claim := func(edit func(*corev1.PersistentVolumeClaim)) admissiontest.Request {
		old := &corev1.PersistentVolumeClaim{ObjectMeta: named("app", "c")}
		c := old.DeepCopy()
		edit(c)
		return admissiontest.Request{Operation: admission.Update, Resource: "persistentvolumeclaims/status", Object: c, Old: old}
	}
	const leases, csiNodes, slices = "leases.coordination.k8s.io", "csinodes.storage.k8s.io", "resourceslices.resource.k8s.io"
	run(t, []testCase{
		{"its lease", admissiontest.Request{Operation: admission.Create, Resource: leases, Object: lease("kube-node-lease", "n1")}, ""},
		{"renew its lease", admissiontest.Request{Operation: admission.Update, Resource: leases, Object: lease("kube-node-lease", "n1"), Old: lease("kube-node-lease", "n1")}, ""},
		{"another's lease", admissiontest.Request{Operation: admission.Create, Resource: leases, Object: lease("kube-node-lease", "n2")}, "can only access node lease with the same name as the requesting node"},
		{"delete another's lease", admissiontest.Request{Operation: admission.Delete, Resource: leases, Old: lease("kube-node-lease", "n2")}, "can only access node lease"},
		{"lease in another namespace", admissiontest.Request{Operation: admission.Create, Resource: leases, Object: lease("kube-system", "n1")}, `can only access leases in the "kube-node-lease" system namespace`},
		{"its CSINode", admissiontest.Request{Operation: admission.Create, Resource: csiNodes, Object: csiNode("n1")}, ""},
		{"another's CSINode", admissiontest.Request{Operation: admission.Update, Resource: csiNodes, Object: csiNode("n2"), Old: csiNode("n2")}, "can only access CSINode with the same name as the requesting node"},
		{"its slice", admissiontest.Request{Operation: admission.Create, Resource: slices, Object: slice(ptr.To("n1"))}, ""},
		{"another's slice", admissiontest.Request{Operation: admission.Create, Resource: slices, Object: slice(ptr.To("n2"))}, "can only create ResourceSlice with the same NodeName as the requesting node"},
		{"a slice without node", admissiontest.Request{Operation: admission.Delete, Resource: slices, Old: slice(nil)}, "can only delete ResourceSlice with the same NodeName as the requesting node"},
		{"update of a slice", admissiontest.Request{Operation: admission.Update, Resource: slices, Object: slice(ptr.To("n1")), Old: slice(ptr.To("n1"))}, ""},
		{"a claim", admissiontest.Request{Operation: admission.Create, Resource: "persistentvolumeclaims", Object: &corev1.PersistentVolumeClaim{}}, "may only update PVC status"},
		{"a claim's size", claim(func(c *corev1.PersistentVolumeClaim) {
			c.ResourceVersion = "9"
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		}), ""},
		{"a claim's phase", claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), "is not allowed to update fields other than status.quantity and status.conditions"},
		{"a claim's labels", claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), "is not allowed to update fields"},
		{"another resource", admissiontest.Request{Operation: admission.Create, Resource: "events", Object: &corev1.Event{}}, ""},
		{"not a node", admissiontest.Request{Operation: admission.Create, Resource: "persistentvolumeclaims", Object: &corev1.PersistentVolumeClaim{}, User: &user.DefaultInfo{Name: "bob"}}, ""},
		{"a node user without a name", admissiontest.Request{Operation: admission.Create, Resource: "events", Object: &corev1.Event{}, User: &user.DefaultInfo{Name: "system:node:", Groups: []string{user.NodesGroup}}}, `could not determine node from user "system:node:"`},
	})
}

func TestTokens(t *testing.T) {
	request := func(pod, uid string, audiences ...string) admissiontest.Request {
		return admissiontest.Request{Operation: admission.Create, Resource: "serviceaccounts/token", Namespace: "app", Name: "web",
			Object: &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: types.UID(uid)}}}}
	}
	unbound := request("p1", "p1-uid")
	unbound.Object.(*authenticationv1.TokenRequest).Spec.BoundObjectRef = nil
	toSecret := request("p1", "p1-uid")
	toSecret.Object.(*authenticationv1.TokenRequest).Spec.BoundObjectRef.Kind = "Secret"
	run(t, []testCase{
		{"for its pod", request("p1", "p1-uid"), ""},
		{"for an audience of its pod", request("p1", "p1-uid", "vault"), ""},
		{"for another audience", request("p1", "p1-uid", "bank"), `system:node:n1 is not authorized to request tokens for audience "bank"`},
		{"for an audience it was granted", request("p1", "p1-uid", "granted"), ""},
		{"for two audiences", request("p1", "p1-uid", "vault", "bank"), "node may only request 0 or 1 audiences"},
		{"for a driver", request("csi", "csi-uid", "csi"), ""},
		{"for a driver behind a claim", request("claims", "claims-uid", "csi"), ""},
		{"for an audience that no driver requests", request("claims", "claims-uid", "bank"), "is not authorized to request tokens"},
		{"unbound", unbound, "node requested token not bound to a pod"},
		{"bound to a secret", toSecret, "node requested token not bound to a pod"},
		{"without UID", request("p1", ""), "node requested token with a pod binding without a uid"},
		{"for a replaced pod", request("p1", "old"), "the UID in the bound object reference (old) does not match the UID in record"},
		{"for another's pod", request("p2", "p2-uid"), "node requested token bound to a pod scheduled on a different node"},
		{"for a missing pod", request("gone", "x"), `pods "gone" not found`},
		{"an account, not a token", admissiontest.Request{Operation: admission.Update, Resource: "serviceaccounts", Object: &corev1.ServiceAccount{}, Old: &corev1.ServiceAccount{}}, ""},
	})
}

func TestPodCertificates(t *testing.T) {
	request := func(edit func(*certificatesv1.PodCertificateRequestSpec)) admissiontest.Request {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: named("app", "r")}
		r.Spec.NodeName, r.Spec.NodeUID = "n1", "n1-uid"
		r.Spec.PodName, r.Spec.PodUID = "p1", "p1-uid"
		r.Spec.ServiceAccountName, r.Spec.ServiceAccountUID = "web", "web-uid"
		r.Spec.SignerName = "example.com/signer"
		edit(&r.Spec)
		return admissiontest.Request{Operation: admission.Create, Resource: "podcertificaterequests.certificates.k8s.io", Object: r}
	}
	forPod := func(name string) func(*certificatesv1.PodCertificateRequestSpec) {
		return func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName, s.PodUID = name, types.UID(name+"-uid") }
	}
	tests := []testCase{
		{"for its pod", request(func(*certificatesv1.PodCertificateRequestSpec) {}), ""},
		{"of another node", request(func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "n2" }), "which is not the requesting node"},
		{"of a replaced node", request(func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "old" }), `names node UID "old", inconsistent with the running node ("n1-uid")`},
		{"for a missing pod", request(forPod("gone")), `while retrieving pod "app/gone" named in the PodCertificateRequest`},
		{"for a replaced pod", request(func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "old" }), "which differs from running pod"},
		{"for another's pod", request(forPod("p2")), `pod "app/p2" is not running on node "n1"`},
		{"for a mirror pod", request(forPod("mirror")), `pod "app/mirror" is a mirror pod`},
		{"for another account", request(func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "other" }), "that differs from running pod"},
		{"for a replaced account", request(func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountUID = "old" }), "which differs from the running service account"},
		{"by another signer", request(func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "evil.com/signer" }), `does not mount a podCertificate projected volume for signer "evil.com/signer"`},
		{"by a signer it was granted", request(func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "granted.com/signer" }), ""},
	}
	status := tests[0].request
	status.Resource += "/status"
	deletion := tests[0].request
	deletion.Operation, deletion.Old, deletion.Object = admission.Delete, deletion.Object, nil
	run(t, append(tests, testCase{"status", status, "unexpected subresource status"}, testCase{"delete", deletion, "unexpected operation DELETE"}))
	// A mismatch may come from a stale cache, so the error is not Forbidden and the node retries.
	err := newPlugin(t).Admit(context.Background(), withUser(tests[2].request), nil)
	if apierrors.IsForbidden(err) {
		t.Errorf("refused because of a stale cache: %v", err)
	}
}

func withUser(r admissiontest.Request) admission.Attributes {
	r.User = n1
	return r.Attributes()
}

func TestCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(signer, name string) admissiontest.Request {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return admissiontest.Request{Operation: admission.Create, Resource: "certificatesigningrequests.certificates.k8s.io",
			Object: &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}}
	}
	malformed := request(certificatesv1.KubeletServingSignerName, "x")
	malformed.Object.(*certificatesv1.CertificateSigningRequest).Spec.Request = []byte("nope")
	run(t, []testCase{
		{"client", request(certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:n1"), ""},
		{"serving", request(certificatesv1.KubeletServingSignerName, "system:node:n1"), ""},
		{"another's", request(certificatesv1.KubeletServingSignerName, "system:node:n2"), "can only create a node CSR with CN=system:node:n1"},
		{"another signer's", request("example.com/x", "anything"), ""},
		{"malformed", malformed, "unable to parse csr"},
	})
}
