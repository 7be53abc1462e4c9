// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// withRollback selects the resources of a version before apps/v1beta2, and adds the subresource by
// which clients rolled Deployments back before the revision was in an annotation.
func withRollback(resources ...string) func(map[string]rest.Storage) map[string]rest.Storage {
	return func(endpoints map[string]rest.Storage) map[string]rest.Storage {
		out := maps.Clone(endpoints)
		maps.DeleteFunc(out, func(name string, _ rest.Storage) bool {
			resource, _, _ := strings.Cut(name, "/")
			return !slices.Contains(resources, resource)
		})
		out["deployments/rollback"] = rollbacks{out["deployments"].(rest.Updater)}
		return out
	}
}

// rollbacks is the endpoint of DeploymentRollbacks. The Deployment controller acts on the annotation
// that they leave.
type rollbacks struct{ deployments rest.Updater }

var (
	_ rest.NamedCreater    = rollbacks{}
	_ rest.StorageMetadata = rollbacks{}
)

func (rollbacks) New() runtime.Object               { return &extensionsv1beta1.DeploymentRollback{} }
func (rollbacks) Destroy()                          {}
func (rollbacks) ProducesMIMETypes(string) []string { return nil }
func (rollbacks) ProducesObject(string) any         { return metav1.Status{} }

func (r rollbacks) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	rollback, ok := obj.(*extensionsv1beta1.DeploymentRollback)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a DeploymentRollback: %#v", obj))
	}
	if errs := check.Run(func(c *check.Checker) { validateRollback(c, rollback) }); len(errs) > 0 {
		return nil, apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("DeploymentRollback").GroupKind(), rollback.Name, errs)
	}
	if name != rollback.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in DeploymentRollback object")
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.request(ctx, rollback, options); err != nil {
		return nil, err
	}
	return &metav1.Status{
		Status:  metav1.StatusSuccess,
		Message: fmt.Sprintf("rollback request for deployment %q succeeded", rollback.Name),
		Code:    http.StatusOK,
	}, nil
}

func validateRollback(c *check.Checker, rollback *extensionsv1beta1.DeploymentRollback) {
	c.Add(validation.ValidateAnnotations(rollback.UpdatedAnnotations, field.NewPath("updatedAnnotations"))...)
	if rollback.Name == "" {
		c.Required(field.NewPath("name"), "")
	}
	c.NonNegative(field.NewPath("rollback", "version"), rollback.RollbackTo.Revision)
}

// request writes the annotations, as an update of the Deployment.
func (r rollbacks) request(ctx context.Context, rollback *extensionsv1beta1.DeploymentRollback, options *metav1.CreateOptions) error {
	if info, ok := request.RequestInfoFrom(ctx); ok {
		update := *info
		update.Subresource = ""
		ctx = request.WithRequestInfo(ctx, &update)
	}
	updated := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		d := old.DeepCopyObject().(*appsv1.Deployment)
		for key, value := range rollback.UpdatedAnnotations {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value)
		}
		annotate(&d.ObjectMeta, appsv1.DeprecatedRollbackTo, rollback.RollbackTo.Revision)
		return d, nil
	})
	_, _, err := r.deployments.Update(ctx, rollback.Name, updated, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false,
		&metav1.UpdateOptions{DryRun: options.DryRun})
	return err
}
