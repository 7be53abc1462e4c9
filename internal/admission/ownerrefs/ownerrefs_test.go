// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ownerrefs

import (
	"context"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

// allow lists the permissions of each user: "verb resource namespace/name".
type allow map[string][]string

func (l allow) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	resource := a.GetResource()
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	request := a.GetVerb() + " " + resource + " " + a.GetNamespace() + "/" + a.GetName()
	for _, allowed := range l[a.GetUser().GetName()] {
		if allowed == request {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "by test", nil
}

func newPlugin(t *testing.T) *Plugin {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), meta.RESTScopeNamespace)
	p := New()
	p.SetRESTMapper(mapper)
	p.SetUnconditionalAuthorizer(allow{
		"admin":      {"update */finalizers /*", "delete pods app/p"},
		"owner":      {"delete pods app/p", "delete replicasets app/rs", "delete nodes /n1"},
		"controller": {"delete pods app/p", "update replicasets/finalizers app/rs"},
		"deleter":    {"delete pods app/p"},
	})
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p
}

func owner(kind, name string, block *bool) metav1.OwnerReference {
	versions := map[string]string{"ReplicaSet": "apps/v1", "Mystery": "example.com/v1"}
	version := versions[kind]
	if version == "" {
		version = "v1"
	}
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(kind + name), BlockOwnerDeletion: block}
}

func pod(owners ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p", OwnerReferences: owners}}
}

func TestValidate(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	rs, rsBlocked := owner("ReplicaSet", "rs", nil), owner("ReplicaSet", "rs", yes)
	tests := []struct {
		name     string
		user     string
		old      *corev1.Pod // nil for a create
		new      *corev1.Pod
		resource string
		code     int // 0 if admitted
		message  string
	}{
		{name: "create without owners", user: "other", new: pod()},
		{name: "create with an owner", user: "other", new: pod(rs)},
		{name: "create that does not block", user: "other", new: pod(owner("ReplicaSet", "rs", no))},
		{name: "create that blocks", user: "other", new: pod(rs, rsBlocked), code: http.StatusUnprocessableEntity,
			message: `Pod "p" is invalid: metadata.ownerReferences[1].blockOwnerDeletion: Invalid value: true: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't delete or set finalizers on: by test`},
		{name: "create that blocks, may delete the owner", user: "owner", new: pod(rsBlocked)},
		{name: "create that blocks, may finalize the owner", user: "controller", new: pod(rsBlocked)},
		{name: "create that blocks another object of the kind", user: "owner", new: pod(owner("ReplicaSet", "other", yes)), code: http.StatusUnprocessableEntity},
		{name: "cluster-scoped owner", user: "owner", new: pod(owner("Node", "n1", yes))},
		{name: "unknown kind", user: "owner", new: pod(owner("Mystery", "m", yes)), code: http.StatusUnprocessableEntity,
			message: "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion example.com/v1 Kind Mystery"},
		{name: "unknown kind, may finalize anything", user: "admin", new: pod(owner("Mystery", "m", yes))},
		{name: "invalid version", user: "owner", new: pod(metav1.OwnerReference{APIVersion: "a/b/c", Kind: "X", BlockOwnerDeletion: yes}), code: http.StatusUnprocessableEntity},

		{name: "update that keeps the owners", user: "other", old: pod(rsBlocked), new: pod(rsBlocked)},
		{name: "update from nil to empty owners", user: "other", old: pod(), new: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{}}}},
		{name: "adds an owner", user: "other", old: pod(), new: pod(rs), code: http.StatusForbidden,
			message: `pods "p" is forbidden: cannot set an ownerRef on a resource you can't delete: by test`},
		{name: "adds an owner, may delete", user: "deleter", old: pod(), new: pod(rs)},
		{name: "removes an owner", user: "other", old: pod(rs), new: pod(), code: http.StatusForbidden},
		{name: "sets blockOwnerDeletion", user: "deleter", old: pod(rs), new: pod(rsBlocked), code: http.StatusUnprocessableEntity},
		{name: "sets blockOwnerDeletion, may delete the owner", user: "owner", old: pod(rs), new: pod(rsBlocked)},
		{name: "clears blockOwnerDeletion", user: "deleter", old: pod(rsBlocked), new: pod(rs)},
		{name: "blockOwnerDeletion was set before", user: "deleter", old: pod(rsBlocked), new: pod(rsBlocked, owner("ConfigMap", "c", nil))},
		{name: "pod status, whose strategy restores the owners", user: "other", old: pod(), new: pod(rsBlocked), resource: "pods/status"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: tt.new, User: &user.DefaultInfo{Name: tt.user}, Namespace: "app", Name: "p"}
			if tt.old != nil {
				r.Operation, r.Old = admission.Update, tt.old
			}
			if tt.resource != "" {
				r.Resource = tt.resource
			}
			err := newPlugin(t).Validate(context.Background(), r.Attributes(), nil)
			if tt.code == 0 {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			status, ok := err.(apierrors.APIStatus)
			if !ok || int(status.Status().Code) != tt.code || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("got %v, want %d %q", err, tt.code, tt.message)
			}
			if tt.code == http.StatusUnprocessableEntity && !strings.HasSuffix(status.Status().Details.Causes[0].Field, "blockOwnerDeletion") {
				t.Errorf("cause %+v does not name the field", status.Status().Details.Causes)
			}
		})
	}
}

func TestRefusalNamesTheCreatedObject(t *testing.T) {
	a := admission.NewAttributesRecord(pod(owner("ReplicaSet", "rs", ptr.To(true))), nil, corev1.SchemeGroupVersion.WithKind("Pod"), "app", "",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, &user.DefaultInfo{Name: "nobody"})
	err := newPlugin(t).Validate(context.Background(), a, nil)
	if err == nil || !strings.HasPrefix(err.Error(), `Pod "p" is invalid`) {
		t.Errorf("got %v", err)
	}
}
