// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// params guards the objects that policies take parameters from. The server reads them with its own
// permissions, and messages may quote them, so the author of a policy or binding must be allowed to
// read them.
type params struct {
	authorizer authorizer.Authorizer
	client     kubernetes.Interface
}

func validateParamKind(c *check.Checker, k *admissionv1.ParamKind, path *field.Path) {
	if k == nil {
		return
	}
	validateAPIVersion(c, k.APIVersion, path.Child("apiVersion"))
	if k.Kind == "" {
		c.Required(path.Child("kind"), "")
		return
	}
	if problems := utilvalidation.IsDNS1035Label(strings.ToLower(k.Kind)); len(problems) > 0 {
		c.Invalid(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(problems, ","))
	}
}

func validateAPIVersion(c *check.Checker, version string, path *field.Path) {
	if version == "" {
		c.Required(path, "")
		return
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		c.Invalid(path, version, err.Error())
		return
	}
	if problems := utilvalidation.IsDNS1123Subdomain(gv.Group); gv.Group != "" && len(problems) > 0 {
		c.Invalid(path, gv.Group, strings.Join(problems, ","))
	}
	if gv.Version == "" {
		c.Invalid(path, version, "version must be specified")
		return
	}
	if problems := utilvalidation.IsDNS1035Label(gv.Version); len(problems) > 0 {
		c.Invalid(path, gv.Version, strings.Join(problems, ","))
	}
}

var notFoundActions = []admissionv1.ParameterNotFoundActionType{admissionv1.DenyAction, admissionv1.AllowAction}

// validateParamRef requires parameters by name or by selector.
func validateParamRef(c *check.Checker, ref *admissionv1.ParamRef, path *field.Path) {
	if ref == nil {
		return
	}
	const both = "name and selector are mutually exclusive"
	if ref.Name != "" {
		c.Invalid(path.Child("name"), ref.Name, content.IsPathSegmentName(ref.Name)...)
	}
	if ref.Name != "" && ref.Selector != nil {
		c.Forbidden(path.Child("name"), both)
	}
	if ref.Selector != nil {
		c.LabelSelector(path.Child("selector"), ref.Selector)
	}
	if ref.Name != "" && ref.Selector != nil {
		c.Forbidden(path.Child("selector"), both)
	}
	if ref.Name == "" && ref.Selector == nil {
		c.Required(path, "one of name or selector must be specified")
	}
	action := path.Child("parameterNotFoundAction")
	check.RequiredOneOf(c, action, ptr.Deref(ref.ParameterNotFoundAction, ""), notFoundActions...)
}

// mayRead requires that the author of a policy may read all objects of its paramKind, unless the
// kind is unchanged.
func (p params) mayRead(ctx context.Context, c *check.Checker, kind, old *admissionv1.ParamKind) {
	if kind == nil || old != nil && *old == *kind || isPrivileged(ctx) {
		return
	}
	asked := authorizer.AttributesRecord{ResourceRequest: true, Verb: "get", Name: "*", Namespace: "*"}
	asked.APIGroup, asked.APIVersion, asked.Resource, _ = p.resource(kind)
	caller, err := p.ask(ctx, asked, "paramKind resources")
	switch {
	case errors.Is(err, errRefused):
		err = fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, caller, kind.Kind, kind.APIVersion)
	case err == nil:
		return
	}
	c.Forbidden(field.NewPath("spec", "paramKind"), err.Error())
}

// mayReadBound requires that the author of a binding may get the named parameters, or list the
// selected ones.
func (p params) mayReadBound(ctx context.Context, c *check.Checker, kindOf policyKind, policy string, ref *admissionv1.ParamRef) {
	if ref == nil || isPrivileged(ctx) {
		return
	}
	asked := authorizer.AttributesRecord{
		ResourceRequest: true, Verb: "get", Name: ref.Name, Namespace: ref.Namespace,
		APIGroup: wildcard, APIVersion: wildcard, Resource: wildcard,
	}
	if ref.Name == "" {
		asked.Verb = "list"
	}
	kind, problem := kindOf(ctx, policy)
	switch {
	case problem != nil:
		problem = fmt.Errorf("unable to get policy %s", policy)
	case kind != nil:
		asked.APIGroup, asked.APIVersion, asked.Resource, problem = p.resource(kind)
	}
	caller, err := p.ask(ctx, asked, "paramRef object")
	switch {
	case errors.Is(err, errRefused) && problem != nil:
		err = fmt.Errorf(`%w to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`, problem, caller, asked.Verb)
	case errors.Is(err, errRefused):
		err = fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, caller, asked.Verb)
	case err == nil:
		return
	}
	c.Forbidden(field.NewPath("spec", "paramRef"), err.Error())
}

// policyKind returns the paramKind of a policy; nil if it takes no parameters.
type policyKind func(ctx context.Context, policy string) (*admissionv1.ParamKind, error)

func (p params) validatingKind(ctx context.Context, policy string) (*admissionv1.ParamKind, error) {
	found, err := p.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, policy, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.Spec.ParamKind, nil
}

func (p params) mutatingKind(ctx context.Context, policy string) (*admissionv1.ParamKind, error) {
	found, err := p.client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(ctx, policy, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.Spec.ParamKind, nil
}

// isPrivileged reports whether the caller is in system:masters, which may do everything.
func isPrivileged(ctx context.Context) bool {
	caller, ok := request.UserFrom(ctx)
	return ok && slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup)
}

var errRefused = errors.New("not allowed")

// ask asks the authorizer about the caller.
func (p params) ask(ctx context.Context, asked authorizer.AttributesRecord, what string) (user.Info, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, fmt.Errorf("cannot identify user to authorize read access to %s", what)
	}
	asked.User = caller
	decision, _, err := p.authorizer.Authorize(ctx, asked)
	if err == nil && decision != authorizer.DecisionAllow {
		err = errRefused
	}
	return caller, err
}

// resource returns the API group, version and resource of a kind. An unknown part is a wildcard:
// the caller needs permission for all values.
func (p params) resource(kind *admissionv1.ParamKind) (group, version, resource string, err error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return wildcard, wildcard, wildcard, fmt.Errorf("unable to parse paramKind &{%s %s}", kind.APIVersion, kind.Kind)
	}
	list, err := p.client.Discovery().ServerResourcesForGroupVersion(gv.String())
	if err != nil {
		return gv.Group, gv.Version, wildcard, unresolved(kind)
	}
	for _, r := range list.APIResources {
		isSub := strings.Contains(r.Name, "/")
		elsewhere := r.Group != "" && r.Group != gv.Group || r.Version != "" && r.Version != gv.Version
		if r.Kind == kind.Kind && !isSub && !elsewhere {
			return gv.Group, gv.Version, r.Name, nil
		}
	}
	return gv.Group, gv.Version, wildcard, unresolved(kind)
}

func unresolved(kind *admissionv1.ParamKind) error {
	return fmt.Errorf("unable to resolve paramKind &{%s %s}", kind.APIVersion, kind.Kind)
}
