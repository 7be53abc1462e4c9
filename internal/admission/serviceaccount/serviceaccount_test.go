// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func account(name string, edit ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: name}}
	for _, f := range edit {
		f(a)
	}
	return a
}

func pod(edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}},
			Containers:     []corev1.Container{{Name: "main"}, {Name: "own", VolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: mountPath}}}},
		},
	}
	for _, f := range edit {
		f(p)
	}
	return p
}

// newPlugin returns a plugin whose cache has the given accounts. The API has the account
// "late" as well.
func newPlugin(t *testing.T, accounts ...*corev1.ServiceAccount) *Plugin {
	t.Helper()
	live := []runtime.Object{account("late")}
	factory := informers.NewSharedInformerFactory(nil, 0)
	for _, a := range accounts {
		live = append(live, a)
		if err := factory.Core().V1().ServiceAccounts().Informer().GetIndexer().Add(a); err != nil {
			t.Fatal(err)
		}
	}
	p := New(clocktesting.NewFakeClock(time.Time{}))
	p.SetExternalKubeInformerFactory(factory)
	p.SetExternalKubeClientSet(fake.NewClientset(live...))
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p
}

func create(p *corev1.Pod) admission.Attributes {
	return admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: p}.Attributes()
}

func TestMountsToken(t *testing.T) {
	p := pod()
	plugin := newPlugin(t, account("default", func(a *corev1.ServiceAccount) {
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	}))
	if err := plugin.Admit(context.Background(), create(p), nil); err != nil {
		t.Fatal(err)
	}
	if p.Spec.ServiceAccountName != "default" || p.Spec.DeprecatedServiceAccount != "default" {
		t.Errorf("service account %q, %q", p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount)
	}
	if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "registry"}}, p.Spec.ImagePullSecrets); diff != "" {
		t.Error(diff)
	}
	if len(p.Spec.Volumes) != 1 {
		t.Fatalf("volumes %v", p.Spec.Volumes)
	}
	name := p.Spec.Volumes[0].Name
	if !strings.HasPrefix(name, "kube-api-access-") || len(name) != len("kube-api-access-")+5 {
		t.Errorf("volume name %q", name)
	}
	want := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](420), Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3607)}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}}
	if diff := cmp.Diff(want, p.Spec.Volumes[0].VolumeSource); diff != "" {
		t.Error(diff)
	}
	mount := corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: mountPath}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers[0]) {
		if diff := cmp.Diff([]corev1.VolumeMount{mount}, c.VolumeMounts); diff != "" {
			t.Errorf("%s: %s", c.Name, diff)
		}
	}
	if own := p.Spec.Containers[1].VolumeMounts; len(own) != 1 || own[0].Name != "mine" {
		t.Errorf("a container with its own mount got %v", own)
	}

	// Admission may run twice (reinvocation), and a copied pod already has the volume.
	before := p.DeepCopy()
	if err := plugin.Admit(context.Background(), create(p), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, p); diff != "" {
		t.Errorf("the second admission changed the pod:\n%s", diff)
	}
}

func TestAutomount(t *testing.T) {
	for _, tt := range []struct {
		pod, account *bool
		want         bool
	}{
		{nil, nil, true},
		{nil, ptr.To(false), false},
		{nil, ptr.To(true), true},
		{ptr.To(true), ptr.To(false), true},
		{ptr.To(false), ptr.To(true), false},
		{ptr.To(false), nil, false},
	} {
		p := pod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = tt.pod })
		plugin := newPlugin(t, account("default", func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = tt.account }))
		if err := plugin.Admit(context.Background(), create(p), nil); err != nil {
			t.Fatal(err)
		}
		if got := len(p.Spec.Volumes) == 1; got != tt.want {
			t.Errorf("pod %v, account %v: mounted %v, want %v", ptr.Deref(tt.pod, false), ptr.Deref(tt.account, false), got, tt.want)
		}
	}
}

func TestNoUnusedVolume(t *testing.T) {
	p := pod(func(p *corev1.Pod) { p.Spec.InitContainers, p.Spec.Containers = nil, p.Spec.Containers[1:] })
	if err := newPlugin(t, account("default")).Admit(context.Background(), create(p), nil); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Volumes) != 0 {
		t.Errorf("volumes %v", p.Spec.Volumes)
	}
}

func TestOwnPullSecretsAreKept(t *testing.T) {
	own := []corev1.LocalObjectReference{{Name: "own"}}
	p := pod(func(p *corev1.Pod) { p.Spec.ImagePullSecrets = own })
	plugin := newPlugin(t, account("default", func(a *corev1.ServiceAccount) {
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	}))
	if err := plugin.Admit(context.Background(), create(p), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(own, p.Spec.ImagePullSecrets); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	as := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.ServiceAccountName = name }
	}
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	secretVolume := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	}
	env := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}}
	}
	from := []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
	limited := account("limited", func(a *corev1.ServiceAccount) {
		a.Annotations = map[string]string{enforceAnnotation: "true"}
		a.Secrets = []corev1.ObjectReference{{Name: "ok"}}
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	})
	tests := []struct {
		name   string
		pod    *corev1.Pod
		update string // subresource of an update; "" for a create
		want   string // "" for admitted
	}{
		{name: "account exists", pod: pod(as("free"))},
		{name: "account missing in a stale cache", pod: pod(as("late"))},
		{name: "no such account", pod: pod(as("missing")), want: `pods "p" is forbidden: error looking up service account app/missing: serviceaccount "missing" not found`},
		{name: "mirror pod", pod: pod(mirror)},
		{name: "mirror pod with account", pod: pod(mirror, as("free")), want: "a mirror pod may not reference service accounts"},
		{name: "mirror pod with secret", pod: pod(mirror, secretVolume), want: "a mirror pod may not reference secrets"},
		{name: "mirror pod with token", pod: pod(mirror, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: projection()}}}
		}), want: "a mirror pod may not use ServiceAccountToken volume projections"},
		{name: "any secret", pod: pod(as("free"), secretVolume)},
		{name: "listed secret", pod: pod(as("limited"), func(p *corev1.Pod) { p.Spec.Containers[0].Env = env("ok") })},
		{name: "unlisted volume", pod: pod(as("limited"), secretVolume), want: `volume with secret.secretName="s" is not allowed because service account limited does not reference that secret`},
		{name: "unlisted variable", pod: pod(as("limited"), func(p *corev1.Pod) { p.Spec.Containers[0].Env = env("s") }), want: `container main with envVar E referencing secret.secretName="s" is not allowed because service account limited does not reference that secret`},
		{name: "unlisted init variables", pod: pod(as("limited"), func(p *corev1.Pod) { p.Spec.InitContainers[0].EnvFrom = from }), want: `init container init with envFrom referencing secret.secretName="s" is not allowed`},
		{name: "unlisted pull secret", pod: pod(as("limited"), func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}} }), want: `imagePullSecrets[0].name="s" is not allowed because service account limited does not reference that imagePullSecret`},
		{name: "debugged with unlisted secret", update: "ephemeralcontainers", pod: pod(as("limited"), func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "dbg", Env: env("s")}}}
		}), want: `ephemeral container dbg with envVar E referencing secret.secretName="s"`},
		{name: "debugging checks only ephemeral containers", update: "ephemeralcontainers", pod: pod(as("limited"), secretVolume)},
		{name: "updates are not checked", update: "-", pod: pod(as("missing"))},
		{name: "status is not checked", update: "status", pod: pod(as("missing"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plugin := newPlugin(t, account("free"), limited)
			r := admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: tt.pod}
			if tt.update != "" {
				r.Operation, r.Old = admission.Update, tt.pod
				r.Resource = strings.TrimSuffix("pods/"+tt.update, "/-")
			}
			before := tt.pod.DeepCopy()
			err := plugin.Admit(context.Background(), r.Attributes(), nil)
			if err == nil {
				err = plugin.Validate(context.Background(), r.Attributes(), nil)
			}
			if tt.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
			} else if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if isMirror(tt.pod) || tt.update != "" {
				if diff := cmp.Diff(before, tt.pod); diff != "" {
					t.Errorf("changed:\n%s", diff)
				}
			}
		})
	}
}

func TestWaitsForDefaultAccount(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Time{})
	p := newPlugin(t)
	p.clock = clock
	admit := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() { done <- p.Admit(ctx, create(pod()), nil) }()
		return done
	}
	waitFor := func() {
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
	}

	done := admit(context.Background())
	waitFor()
	if _, err := p.client.CoreV1().ServiceAccounts("app").Create(context.Background(), account("default"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.Step(retryInterval)
	if err := <-done; err != nil {
		t.Errorf("refused although the account was created: %v", err)
	}

	if err := p.client.CoreV1().ServiceAccounts("app").Delete(context.Background(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	done = admit(context.Background())
	for range defaultAttempts - 1 {
		waitFor()
		clock.Step(retryInterval)
	}
	if err := <-done; !apierrors.IsForbidden(err) {
		t.Errorf("admitted without an account: %v", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done = admit(ctx)
	waitFor()
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled request was admitted")
	}
}
