// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	dynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestPoliciesStart: a request waits until the policies have started, except one for a resource that they do not apply to.
func TestPoliciesStart(t *testing.T) {
	shared := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	reviews := schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}
	clock := clocktesting.NewFakeClock(time.Time{})
	policies, err := NewPolicies(shared, []schema.GroupResource{reviews}, clock)
	if err != nil {
		t.Fatal(err)
	}
	chain := policyChain(t, policies, shared)
	create := func(r schema.GroupResource) error {
		return chain.(admission.MutationInterface).Admit(t.Context(), creation(r), admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	}

	if err := create(reviews); err != nil {
		t.Errorf("excluded resource before the start: %v", err)
	}
	configMaps := corev1.Resource("configmaps")
	waiting := make(chan error, 1)
	go func() { waiting <- create(configMaps) }()
	awaitTimer(t, clock)
	clock.Step(policiesLimit)
	if err := <-waiting; !apierrors.IsForbidden(err) {
		t.Errorf("a request at its limit: %v", err)
	}

	go func() { waiting <- create(configMaps) }()
	awaitTimer(t, clock)
	shared.Start(t.Context().Done())
	if err := policies.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("a request that waited for the start: %v", err)
	}
	if err := chain.(admission.ValidationInterface).Validate(t.Context(), creation(configMaps), admission.NewObjectInterfacesFromScheme(scheme.Scheme)); err != nil {
		t.Errorf("a validation after the start: %v", err)
	}
}

// TestPoliciesStopEarly: the start of the policies ends with the server, if their informers never sync.
func TestPoliciesStopEarly(t *testing.T) {
	policies, err := NewPolicies(informers.NewSharedInformerFactory(fake.NewClientset(), 0), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := policies.Start(ctx); err == nil {
		t.Error("the policies have started without their informers")
	}
}

// policyChain returns the initialized plugins for policies. Their client has no server: the fake one has no OpenAPI documents.
func policyChain(t *testing.T, policies *Policies, shared informers.SharedInformerFactory) admission.Interface {
	t.Helper()
	plugins := admission.NewPlugins()
	policies.Register(plugins)
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://server.invalid"})
	basic := initializer.New(client, dynamic.NewSimpleDynamicClient(scheme.Scheme), shared, authorizerfactory.NewAlwaysAllowAuthorizer(), utilfeature.DefaultFeatureGate, nil, t.Context().Done(), meta.NewDefaultRESTMapper(nil))
	names := slices.DeleteFunc(Order(), func(name string) bool {
		return name != "MutatingAdmissionPolicy" && name != "ValidatingAdmissionPolicy"
	})
	chain, err := plugins.NewFromPlugins(names, noConfiguration{}, basic, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

func creation(r schema.GroupResource) admission.Attributes {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
	return admission.NewAttributesRecord(object, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "default", "a", r.WithVersion("v1"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
}

func awaitTimer(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
	for !clock.HasWaiters() {
		if t.Context().Err() != nil {
			t.Fatal("the request does not wait")
		}
		time.Sleep(time.Millisecond)
	}
}

type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }
