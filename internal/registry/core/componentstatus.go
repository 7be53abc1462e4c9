// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Component is a part of the control plane under its traditional name: controller-manager,
// scheduler, etcd-0.
type Component struct {
	Name string
	// Check returns an error if the component is not healthy.
	Check func(ctx context.Context) error
}

// componentStatus serves the health of the components. It stores nothing and checks them at each
// request.
type componentStatus struct {
	rest.TableConvertor
	components []Component
}

var (
	_ rest.Getter               = componentStatus{}
	_ rest.Lister               = componentStatus{}
	_ rest.Scoper               = componentStatus{}
	_ rest.SingularNameProvider = componentStatus{}
	_ rest.ShortNamesProvider   = componentStatus{}
)

func newComponentStatus(components []Component) generic.Transient {
	cell := func(show func(*corev1.ComponentCondition) string) func(*corev1.ComponentStatus) any {
		return func(c *corev1.ComponentStatus) any { return show(&c.Conditions[0]) }
	}
	return generic.Transient{Plural: "componentstatuses", Endpoint: componentStatus{
		components: components,
		TableConvertor: generic.TableConvertor(
			generic.NameColumn[*corev1.ComponentStatus](),
			generic.Column[*corev1.ComponentStatus]{Name: "Status", Description: "Status of the component conditions", Cell: cell(func(c *corev1.ComponentCondition) string {
				if c.Status == corev1.ConditionTrue {
					return "Healthy"
				}
				return "Unhealthy"
			})},
			generic.Column[*corev1.ComponentStatus]{Name: "Message", Description: "Message of the component conditions", Cell: cell(func(c *corev1.ComponentCondition) string { return c.Message })},
			generic.Column[*corev1.ComponentStatus]{Name: "Error", Description: "Error of the component conditions", Cell: cell(func(c *corev1.ComponentCondition) string { return c.Error })},
		),
	}}
}

func (componentStatus) New() runtime.Object     { return &corev1.ComponentStatus{} }
func (componentStatus) NewList() runtime.Object { return &corev1.ComponentStatusList{} }
func (componentStatus) Destroy()                {}
func (componentStatus) NamespaceScoped() bool   { return false }
func (componentStatus) GetSingularName() string { return "componentstatus" }
func (componentStatus) ShortNames() []string    { return []string{"cs"} }

// Get implements rest.Getter.
func (s componentStatus) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	for _, c := range s.components {
		if c.Name == name {
			return c.status(ctx), nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("componentstatus"), name)
}

// List implements rest.Lister.
func (s componentStatus) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	label, field := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		label = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		field = options.FieldSelector
	}
	list := &corev1.ComponentStatusList{Items: []corev1.ComponentStatus{}}
	for _, c := range s.components {
		if label.Matches(labels.Set{}) && field.Matches(fields.Set{"metadata.name": c.Name, "metadata.namespace": ""}) {
			list.Items = append(list.Items, *c.status(ctx))
		}
	}
	return list, nil
}

func (c Component) status(ctx context.Context) *corev1.ComponentStatus {
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err := c.Check(ctx); err != nil {
		condition = corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse, Error: err.Error()}
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Conditions: []corev1.ComponentCondition{condition}}
}
