// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// pressureTaint selects the taints of a node under pressure.
const pressureTaint = `t.key in ["node.kubernetes.io/disk-pressure", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure"]`

// keepUntainted keeps the taints of pressure from nodes. The suite of node agents usually runs without the controller that sets
// them, and takes a node that has one for unusable.
func keepUntainted(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	name := metav1.ObjectMeta{Name: "without-taints-of-pressure"}
	nodes := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
	}}
	_, policy := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(ctx, &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{nodes}},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "has-one", Expression: `has(object.spec.taints) && object.spec.taints.exists(t, ` + pressureTaint + `)`,
			}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "replace", path: "/spec/taints",
					value: object.spec.taints.filter(t, !(` + pressureTaint + `))}]`},
			}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}, metav1.CreateOptions{})
	_, binding := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: name, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name},
	}, metav1.CreateOptions{})
	return errors.Join(policy, binding)
}
