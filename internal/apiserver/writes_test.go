// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/internal/auth/audit"
)

const writingAgent = "kube-controller-manager/v1 (test)"

// writers are the two ways to write an object: directly, and by client-go.
func (s *testServer) writers(t *testing.T, as user.Info) map[string]func(method, path string, object runtime.Object) (runtime.Object, error) {
	t.Helper()
	config := s.Config(as)
	config.UserAgent = writingAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(string, string, runtime.Object) (runtime.Object, error){
		"directly": func(method, path string, object runtime.Object) (runtime.Object, error) {
			return s.Client(nil).Write(t.Context(), as, writingAgent, method, path, object)
		},
		"by client-go": func(method, path string, object runtime.Object) (runtime.Object, error) {
			return client.CoreV1().RESTClient().Verb(method).AbsPath(path).Body(object).Do(t.Context()).Get()
		},
	}
}

// comparable returns what an object has, without what no two objects have in common.
func comparable(t *testing.T, object runtime.Object) runtime.Object {
	t.Helper()
	object = object.DeepCopyObject()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object // a status
	}
	if made := accessor.GetCreationTimestamp(); accessor.GetUID() == "" || accessor.GetResourceVersion() == "" || made.IsZero() || len(accessor.GetManagedFields()) == 0 {
		t.Errorf("the created object has the metadata %+v", accessor)
	}
	accessor.SetName("")
	accessor.SetUID("")
	accessor.SetResourceVersion("")
	accessor.SetCreationTimestamp(metav1.Time{})
	fields := accessor.GetManagedFields()
	for i := range fields {
		fields[i].Time = nil
	}
	return object
}

// TestWrites: an object that is written directly is the same as one that client-go writes, and so are the errors.
func TestWrites(t *testing.T) {
	s := server
	namespace := s.namespace(t)
	pods, events := "/api/v1/namespaces/"+namespace+"/pods", "/apis/events.k8s.io/v1/namespaces/"+namespace+"/events"
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: "p-", Namespace: namespace, Labels: map[string]string{"a": "b"}, ResourceVersion: "", UID: "ignored",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "u", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	event := func(reason string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e-", Namespace: namespace}, EventTime: metav1.NewMicroTime(time.Unix(1, 0)), Type: corev1.EventTypeNormal,
			ReportingController: "default-scheduler", ReportingInstance: "i", Action: "Binding", Reason: reason,
			Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "p"},
		}
	}
	made := func(name string) *corev1.Pod {
		p, err := s.client(t).CoreV1().Pods(namespace).Create(t.Context(), pod(func(p *corev1.Pod) { p.Name = name }), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	bound := 0
	binding := func(change func(*corev1.Binding)) (string, runtime.Object) {
		bound++
		p := made(fmt.Sprint("bound-", bound))
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
		if change != nil {
			change(b)
		}
		return pods + "/" + p.Name + "/binding", b
	}
	running := 0
	status := func(change func(*corev1.Pod)) (string, runtime.Object) {
		running++
		p := made(fmt.Sprint("running-", running))
		path := pods + "/" + p.Name + "/status"
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: p.Status.QOSClass, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}
		p.ManagedFields = nil
		if change != nil {
			change(p)
		}
		return path, p
	}
	leased := 0
	lease := func(change func(*coordinationv1.Lease)) (string, runtime.Object) {
		leased++
		leases := s.client(t).CoordinationV1().Leases(namespace)
		l, err := leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("leased-", leased)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("h"), RenewTime: new(metav1.NewMicroTime(time.Unix(1, 0)))},
		}, metav1.CreateOptions{FieldManager: managerOf(writingAgent)})
		if err != nil {
			t.Fatal(err)
		}
		l.Spec.RenewTime = new(metav1.NewMicroTime(time.Unix(2, 0)))
		if change != nil {
			change(l)
		}
		return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + l.Name, l
	}
	at := func(path string, object runtime.Object) func() (string, runtime.Object) {
		return func() (string, runtime.Object) { return path, object }
	}
	made("existing")
	all := &user.DefaultInfo{Name: "system:kube-scheduler", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	for name, test := range map[string]struct {
		request func() (string, runtime.Object)
		as      user.Info
		fails   bool
	}{
		"a pod":                {at(pods, pod(nil)), all, false},
		"without a namespace":  {at(pods, pod(func(p *corev1.Pod) { p.Namespace = "" })), all, false},
		"with a status":        {at(pods, pod(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Message: "m"} })), all, false},
		"another namespace":    {at(pods, pod(func(p *corev1.Pod) { p.Namespace = "default" })), all, true},
		"a missing namespace":  {at("/api/v1/namespaces/none/pods", pod(func(p *corev1.Pod) { p.Namespace = "none" })), all, true},
		"an invalid pod":       {at(pods, pod(func(p *corev1.Pod) { p.Spec.Containers = nil })), all, true},
		"an existing pod":      {at(pods, pod(func(p *corev1.Pod) { p.Name = "existing" })), all, true},
		"refused by admission": {at(pods, pod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" })), all, true},
		"not allowed":          {at(pods, pod(nil)), &user.DefaultInfo{Name: "system:nobody", Groups: []string{user.AllAuthenticated}}, true},
		"a binding":            {func() (string, runtime.Object) { return binding(nil) }, all, false},
		"of another pod": {func() (string, runtime.Object) {
			return binding(func(b *corev1.Binding) { b.UID = types.UID("other") })
		}, all, true},
		"without a node":          {func() (string, runtime.Object) { return binding(func(b *corev1.Binding) { b.Target.Name = "" }) }, all, true},
		"an event":                {at(events, event("Scheduled")), all, false},
		"an invalid event":        {at(events, event("")), all, true},
		"by the generic endpoint": {at("/api/v1/namespaces/"+namespace+"/configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}), all, false},
		"a status":                {func() (string, runtime.Object) { return status(nil) }, all, false},
		"and a specification": {func() (string, runtime.Object) {
			return status(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" })
		}, all, false},
		"without a version":       {func() (string, runtime.Object) { return status(func(p *corev1.Pod) { p.ResourceVersion = "" }) }, all, false},
		"and without a namespace": {func() (string, runtime.Object) { return status(func(p *corev1.Pod) { p.Namespace = "" }) }, all, false},
		"of a past version":       {func() (string, runtime.Object) { return status(func(p *corev1.Pod) { p.ResourceVersion = "1" }) }, all, true},
		"of a past pod":           {func() (string, runtime.Object) { return status(func(p *corev1.Pod) { p.UID = "other" }) }, all, true},
		"an invalid status": {func() (string, runtime.Object) {
			return status(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "x"}} })
		}, all, true},
		"of another name":          {func() (string, runtime.Object) { return status(func(p *corev1.Pod) { p.Name = "other" }) }, all, true},
		"of another namespace":     {func() (string, runtime.Object) { return status(func(p *corev1.Pod) { p.Namespace = "default" }) }, all, true},
		"a status that may not be": {func() (string, runtime.Object) { return status(nil) }, &user.DefaultInfo{Name: "system:nobody", Groups: []string{user.AllAuthenticated}}, true},
		"a renewed lease":          {func() (string, runtime.Object) { return lease(nil) }, all, false},
		"a lease with a label": {func() (string, runtime.Object) {
			return lease(func(l *coordinationv1.Lease) { l.Labels = map[string]string{"a": "b"} })
		}, all, false},
		"a lease of a past version": {func() (string, runtime.Object) {
			return lease(func(l *coordinationv1.Lease) { l.ResourceVersion = "1" })
		}, all, true},
		"an invalid lease": {func() (string, runtime.Object) {
			return lease(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(-1)) })
		}, all, true},
		"of a missing pod": {at(pods+"/none/status", pod(func(p *corev1.Pod) { p.Name, p.UID = "none", "" })), all, true},
	} {
		t.Run(name, func(t *testing.T) {
			results, errs := map[string]runtime.Object{}, map[string]string{}
			for how, write := range s.writers(t, test.as) {
				path, object := test.request()
				before, method := object.DeepCopyObject(), http.MethodPost
				if strings.HasSuffix(path, "/status") || strings.Contains(path, "/leases/") {
					method = http.MethodPut
				}
				written, err := write(method, path, object)
				if diff := cmp.Diff(before, object); diff != "" {
					t.Errorf("%s: the object has changed (-before +after):\n%s", how, diff)
				}
				if (err != nil) != test.fails {
					t.Fatalf("%s: %v, %v", how, written, err)
				}
				if err != nil {
					errs[how] = err.Error()
					continue
				}
				results[how] = comparable(t, written)
			}
			if diff := cmp.Diff(results["by client-go"], results["directly"]); diff != "" {
				t.Errorf("what is written (-by client-go +directly):\n%s", diff)
			}
			one, other := unique.ReplaceAllString(errs["by client-go"], "N"), unique.ReplaceAllString(errs["directly"], "N")
			if one != other {
				t.Errorf("errors: %s by client-go, and %s directly", one, other)
			}
		})
	}
}

// unique matches the names and UIDs of new objects in errors.
var unique = regexp.MustCompile(`(bound|running|leased)-\d+|\b[pe]-[a-z0-9]{5}\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// TestUpdateOfMissingLease: a Lease that is updated directly is not created, as an update of client-go would do.
func TestUpdateOfMissingLease(t *testing.T) {
	namespace := server.namespace(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "missing", Namespace: namespace}}
	all := &user.DefaultInfo{Name: "system:kube-scheduler", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	path := "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/missing"
	_, err := server.writers(t, all)["directly"](http.MethodPut, path, lease)
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `leases.coordination.k8s.io "missing" not found`) {
		t.Errorf("the update: %v", err)
	}
}

// TestAuditOfWrites: they are logged like other requests, with and without bodies.
func TestAuditOfWrites(t *testing.T) {
	dir := t.TempDir()
	o := options.NewAuditOptions()
	o.PolicyFile, o.LogOptions.Path = filepath.Join(dir, "policy"), filepath.Join(dir, "log", "audit.log")
	const policy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, namespaces: [default], verbs: [create], resources: [{group: "", resources: [pods]}]}
- {level: RequestResponse, namespaces: [kube-system], verbs: [create], resources: [{group: "", resources: [pods]}]}
- {level: None}
`
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := audit.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	s := own(t, func(c *Config) { c.Audit = config })
	all := &user.DefaultInfo{Name: "system:kube-scheduler", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	writers := s.writers(t, all)
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}}
		if _, err := writers["by client-go"](http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts", account); err != nil {
			t.Fatal(err)
		}
		for _, how := range []string{"directly", "by client-go"} {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: namespace},
				Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}
			if _, err := writers[how](http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	logged := map[string][]string{}
	for _, e := range recorded(t, o.LogOptions.Path) {
		if e.ResponseStatus.Code != http.StatusCreated {
			continue
		}
		logged[e.ObjectRef.Namespace] = append(logged[e.ObjectRef.Namespace], fmt.Sprintf("%s %s %s %s name %t uid %t, bodies %t %t, by %s as %s, %v", e.Level, e.Verb, e.RequestURI,
			e.ObjectRef.Resource, e.ObjectRef.Name != "", e.ObjectRef.UID != "", e.RequestObject != nil, e.ResponseObject != nil, e.User.Username, e.UserAgent, e.Annotations))
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if lines := logged[namespace]; len(lines) != 2 || lines[0] != lines[1] {
			t.Errorf("in %s, directly and by client-go: %q", namespace, lines)
		}
	}
}
