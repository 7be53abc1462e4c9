// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/request"
	listers "k8s.io/client-go/listers/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
)

// TestBootstrapObjectsExist: the default objects have upstream's names, and none is dangling.
func TestBootstrapObjectsExist(t *testing.T) {
	client := server.client(t).FlowcontrolV1()
	for _, level := range append(bootstrap.SuggestedPriorityLevelConfigurations, bootstrap.MandatoryPriorityLevelConfigurations...) {
		if _, err := client.PriorityLevelConfigurations().Get(t.Context(), level.Name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	for _, schema := range append(bootstrap.SuggestedFlowSchemas, bootstrap.MandatoryFlowSchemas...) {
		eventually(t, func() error {
			got, err := client.FlowSchemas().Get(t.Context(), schema.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Status != flowcontrolv1.ConditionFalse {
				return errors.New(schema.Name + " is not followed yet")
			}
			return nil
		})
	}
}

// TestRequestsAreClassified: the response names the objects that classified the request (KEP-1040).
func TestRequestsAreClassified(t *testing.T) {
	client := server.client(t).FlowcontrolV1()
	exempt, err := client.FlowSchemas().Get(t.Context(), "exempt", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		got := server.do(t, server.admin, http.MethodGet, "/api/v1/namespaces", "")
		if uid := got.header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); types.UID(uid) != exempt.UID {
			return errors.New("the administrator is let in by " + uid)
		}
		return nil
	})
}

// refusing is a filter that refuses all requests.
type refusing struct{ utilflowcontrol.Interface }

func (refusing) Handle(context.Context, utilflowcontrol.RequestDigest,
	func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	func() request.WorkEstimate, fairqueuing.QueueNoteFn, func()) {
}

// TestExemptRequests: administrators are exempt once the exempt objects are cached; the filter
// decides about all other requests.
func TestExemptRequests(t *testing.T) {
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}}
	schemas, levels := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	f := &fairness{
		Interface: refusing{}, clock: testingclock.NewFakeClock(time.Now()),
		schemas: listers.NewFlowSchemaLister(schemas), levels: listers.NewPriorityLevelConfigurationLister(levels),
	}
	// admits returns the objects that admit a caller without queueing, or "".
	admits := func(caller user.Info) (by string) {
		var noted string
		note := func(schema *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, _ string) {
			noted = schema.Name + "/" + level.Name
		}
		f.Handle(t.Context(), utilflowcontrol.RequestDigest{User: caller}, note, nil, nil, func() { by = noted })
		return by
	}

	if by := admits(admin); by != "" {
		t.Errorf("admitted by %q before the objects are cached", by)
	}
	_ = schemas.Add(&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "exempt"}})
	if by := admits(admin); by != "" {
		t.Errorf("admitted by %q before the priority level is cached", by)
	}
	_ = levels.Add(&flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "exempt"}})
	if by := admits(admin); by != "exempt/exempt" {
		t.Errorf("an administrator is admitted by %q", by)
	}
	if by := admits(&user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}); by != "" {
		t.Errorf("alice is admitted by %q", by)
	}
}

// narrow creates a priority level with one seat, for one user.
func narrow(t *testing.T, user string) {
	t.Helper()
	admin := server.client(t).FlowcontrolV1()
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			// A level without shares admits one request at a time.
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32), BorrowingLimitPercent: new(int32),
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         2,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level.Name},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true}},
			}},
		},
	}
	if _, err := admin.PriorityLevelConfigurations().Create(t.Context(), level, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.FlowSchemas().Create(t.Context(), schema, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = admin.FlowSchemas().Delete(context.Background(), schema.Name, metav1.DeleteOptions{})
		_ = admin.PriorityLevelConfigurations().Delete(context.Background(), level.Name, metav1.DeleteOptions{})
	})
	eventually(t, func() error {
		got, err := admin.FlowSchemas().Get(t.Context(), schema.Name, metav1.GetOptions{})
		if err == nil && len(got.Status.Conditions) == 0 {
			err = errors.New("the schema is not followed yet")
		}
		return err
	})
}

// TestFullLevelRefuses: while its one seat is occupied, a level rejects requests; other levels do
// not.
func TestFullLevelRefuses(t *testing.T) {
	namespace := server.namespace(t)
	client := grant(t, "narrowed", rbacv1.PolicyRule{Verbs: []string{"create", "get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	config := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "holds-" + namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "holds.example.com", Rules: []admissionv1.RuleWithOperations{onConfigMaps}, NamespaceSelector: inNamespace(namespace),
			SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: new(int32(30)),
			ClientConfig: reviewer(t, func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
				entered <- struct{}{}
				<-leave
				return &admissionreview.AdmissionResponse{Allowed: true}
			}),
		}},
	}
	hooks := server.client(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer hooks.Delete(t.Context(), config.Name, metav1.DeleteOptions{})
	narrow(t, "narrowed")

	held := make(chan error, 1)
	eventually(t, func() error {
		go func() {
			_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
			held <- err
		}()
		select {
		case <-entered:
			return nil
		case <-held: // the webhook is not called yet
			return errors.New("nothing holds the request")
		}
	})
	get := func(name string) error {
		return server.as(t, name).CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces", namespace, "configmaps", "none").MaxRetries(0).Do(t.Context()).Error()
	}
	eventually(t, func() error {
		if err := get("narrowed"); !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("not rejected: %w", err)
		}
		return nil
	})
	if err := get("another"); !apierrors.IsForbidden(err) {
		t.Errorf("another user: %v", err)
	}
	close(leave)
	if err := <-held; err != nil {
		t.Errorf("the admitted request: %v", err)
	}
	if err := get("narrowed"); !apierrors.IsNotFound(err) {
		t.Errorf("once the seat is free: %v", err)
	}
}
