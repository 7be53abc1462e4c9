// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onConfigMaps is a rule for creates and updates of ConfigMaps.
var onConfigMaps = admissionv1.RuleWithOperations{
	Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
	Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
}

func inNamespace(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
}

// reviewer serves AdmissionReviews over TLS on loopback.
func reviewer(t *testing.T, review func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse) admissionv1.WebhookClientConfig {
	t.Helper()
	served := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked admissionreview.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked.Response = review(asked.Request)
		asked.Response.UID = asked.Request.UID
		_ = json.NewEncoder(w).Encode(asked)
	}))
	t.Cleanup(served.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw})
	return admissionv1.WebhookClientConfig{URL: &served.URL, CABundle: authority}
}

// eventually retries until a configuration takes effect.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	if err := within(10*time.Second, try); err != nil {
		t.Fatal(err)
	}
}

func TestMutatingWebhookOnLoopback(t *testing.T) {
	client, namespace := server.client(t), server.namespace(t)
	config := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "signs-" + namespace},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "signs.example.com", Rules: []admissionv1.RuleWithOperations{onConfigMaps}, NamespaceSelector: inNamespace(namespace),
			SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: reviewer(t, func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
				return &admissionreview.AdmissionResponse{
					Allowed: true, PatchType: new(admissionreview.PatchTypeJSONPatch),
					Patch: []byte(`[{"op":"add","path":"/data","value":{"signed":"yes"}}]`),
				}
			}),
		}},
	}
	made, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), config, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(t.Context(), made.Name, metav1.DeleteOptions{})
	if made.Generation != 1 || *made.Webhooks[0].TimeoutSeconds != 10 {
		t.Errorf("generation %d, timeout %d", made.Generation, *made.Webhooks[0].TimeoutSeconds)
	}
	eventually(t, func() error {
		made, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
		if err == nil && made.Data["signed"] != "yes" {
			err = errors.New("it was not signed")
		}
		return err
	})
}

func TestValidatingWebhookOnLoopback(t *testing.T) {
	client, namespace := server.client(t), server.namespace(t)
	config := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refuses-" + namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "refuses.example.com", Rules: []admissionv1.RuleWithOperations{onConfigMaps}, NamespaceSelector: inNamespace(namespace),
			SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			MatchConditions: []admissionv1.MatchCondition{{Name: "not-mine", Expression: "object.metadata.name != 'mine'"}},
			ClientConfig: reviewer(t, func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
				return &admissionreview.AdmissionResponse{Result: &metav1.Status{Message: "not today"}}
			}),
		}},
	}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), config.Name, metav1.DeleteOptions{})
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), `admission webhook "refuses.example.com" denied the request: not today`) {
			return errors.New("not refused by the webhook")
		}
		return nil
	})
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("mine", nil), metav1.CreateOptions{}); err != nil {
		t.Errorf("an object that the match conditions exclude: %v", err)
	}
}

// policed matches the ConfigMaps of one namespace.
func policed(namespace string) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: inNamespace(namespace),
		ResourceRules:     []admissionv1.NamedRuleWithOperations{{RuleWithOperations: onConfigMaps}},
	}
}

// TestValidatingPolicyRefuses: a policy with parameters, a variable and a message expression.
func TestValidatingPolicyRefuses(t *testing.T) {
	client, namespace := server.client(t), server.namespace(t)
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("limits", map[string]string{"max": "1"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	registration := client.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "small-" + namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			ParamKind:        &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			MatchConstraints: policed(namespace),
			Variables:        []admissionv1.Variable{{Name: "max", Expression: "int(params.data.max)"}},
			Validations: []admissionv1.Validation{{
				Expression: "!has(object.data) || size(object.data) <= variables.max", MessageExpression: "'at most ' + params.data.max",
			}},
		},
	}
	made, err := registration.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer registration.ValidatingAdmissionPolicies().Delete(t.Context(), made.Name, metav1.DeleteOptions{})
	if made.Generation != 1 || *made.Spec.FailurePolicy != admissionv1.Fail || *made.Spec.MatchConstraints.ResourceRules[0].Scope != admissionv1.AllScopes {
		t.Errorf("wrong defaults: %v", made)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: made.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: made.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			ParamRef: &admissionv1.ParamRef{Name: "limits", Namespace: namespace, ParameterNotFoundAction: new(admissionv1.DenyAction)},
		},
	}
	if _, err := registration.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer registration.ValidatingAdmissionPolicyBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{})
	eventually(t, func() error {
		big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "big-"}, Data: map[string]string{"a": "", "b": ""}}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), big, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "denied request: at most 1") {
			return errors.New("not refused by the policy")
		}
		return nil
	})
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("small", map[string]string{"a": ""}), metav1.CreateOptions{}); err != nil {
		t.Errorf("an object within the limit: %v", err)
	}
}

func TestMutatingPolicyChanges(t *testing.T) {
	client, namespace := server.client(t), server.namespace(t)
	registration := client.AdmissionregistrationV1()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "labels-" + namespace},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   policed(namespace),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"policed": "yes"}}}`},
			}},
		},
	}
	if _, err := registration.MutatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer registration.MutatingAdmissionPolicies().Delete(t.Context(), policy.Name, metav1.DeleteOptions{})
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}
	if _, err := registration.MutatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer registration.MutatingAdmissionPolicyBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{})
	eventually(t, func() error {
		made, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
		if err == nil && made.Labels["policed"] != "yes" {
			err = errors.New("no label")
		}
		return err
	})
}

// TestParametersMustBeReadable: a user who may write policies but not read their parameter resource
// is refused.
func TestParametersMustBeReadable(t *testing.T) {
	rules := []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{admissionv1.GroupName}, Resources: []string{"*"}}}
	policies := grant(t, "policy-author", rules...).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "reads-secrets"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			ParamKind:        &admissionv1.ParamKind{APIVersion: "v1", Kind: "Secret"},
			MatchConstraints: policed("nowhere"),
			Validations:      []admissionv1.Validation{{Expression: "true"}},
		},
	}
	_, err := policies.Create(t.Context(), policy, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.paramKind: Forbidden: user &{policy-author") ||
		!strings.Contains(err.Error(), `must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`) {
		t.Error(err)
	}
	policy.Spec.ParamKind = nil
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Errorf("without parameters: %v", err)
	}
}
