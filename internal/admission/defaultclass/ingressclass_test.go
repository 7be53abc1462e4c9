// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package defaultclass

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func newIngressClass(t *testing.T, classes ...*networkingv1.IngressClass) *IngressClass {
	factory := informers.NewSharedInformerFactory(nil, 0)
	plugin := NewIngressClass()
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetReadyFunc(func() bool { return true })
	for _, class := range classes {
		if err := factory.Networking().V1().IngressClasses().Informer().GetIndexer().Add(class); err != nil {
			t.Fatal(err)
		}
	}
	return plugin
}

func TestIngressClass(t *testing.T) {
	plain := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	marked := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "marked", Annotations: map[string]string{"ingressclass.kubernetes.io/is-default-class": "true"}}}
	ingress := func(class *string, annotations map[string]string) *networkingv1.Ingress {
		return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: networkingv1.IngressSpec{IngressClassName: class}}
	}
	for name, test := range map[string]struct {
		resource string
		classes  []*networkingv1.IngressClass
		ingress  *networkingv1.Ingress
		want     *string
	}{
		"no classes":                     {"ingresses", nil, ingress(nil, nil), nil},
		"no default":                     {"ingresses", []*networkingv1.IngressClass{plain}, ingress(nil, nil), nil},
		"default is set":                 {"ingresses", []*networkingv1.IngressClass{plain, marked}, ingress(nil, nil), ptr.To("marked")},
		"class is kept":                  {"ingresses", []*networkingv1.IngressClass{plain, marked}, ingress(ptr.To("own"), nil), ptr.To("own")},
		"empty class is kept":            {"ingresses", []*networkingv1.IngressClass{plain, marked}, ingress(ptr.To(""), nil), ptr.To("")},
		"class in an annotation is kept": {"ingresses", []*networkingv1.IngressClass{marked}, ingress(nil, map[string]string{"kubernetes.io/ingress.class": ""}), nil},
		"subresource is ignored":         {"ingresses/status", []*networkingv1.IngressClass{marked}, ingress(nil, nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := admissiontest.Request{Operation: admission.Create, Resource: "ingresses.networking.k8s.io", Object: test.ingress}
			if test.resource != "ingresses" {
				r.Resource = "ingresses.networking.k8s.io/status"
			}
			if err := newIngressClass(t, test.classes...).Admit(t.Context(), r.Attributes(), nil); err != nil {
				t.Fatal(err)
			}
			if got := test.ingress.Spec.IngressClassName; !ptr.Equal(got, test.want) {
				t.Errorf("%v, want %v", ptr.Deref(got, "none"), ptr.Deref(test.want, "none"))
			}
		})
	}
}

func TestIngressClassRefusals(t *testing.T) {
	plugin := newIngressClass(t)
	create := func(obj runtime.Object) error {
		r := admissiontest.Request{Operation: admission.Create, Resource: "ingresses.networking.k8s.io", Object: obj}
		return plugin.Admit(t.Context(), r.Attributes(), nil)
	}
	if err := create(&networkingv1.IngressClass{}); !apierrors.IsInternalError(err) {
		t.Errorf("another kind: %v", err)
	}
}
