// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ingress/compile"
)

// ClassName is the name of the IngressClass that Kindred creates.
const ClassName = "kindred"

// managed marks objects that this package creates.
var managed = map[string]string{"app.kubernetes.io/managed-by": "ingress.kindred.dev"}

// ensureClass creates the IngressClass. It becomes the default if no other class is. A class that exists is left as
// it is, so that a user can change it.
func (i *Ingress) ensureClass(ctx context.Context) error {
	lister := i.options.Informers.Networking().V1().IngressClasses().Lister()
	if _, err := lister.Get(ClassName); err == nil {
		return nil
	}
	class := &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: ClassName, Labels: managed},
		Spec:       networkingv1.IngressClassSpec{Controller: compile.Controller},
	}
	others, _ := lister.List(labels.Everything()) // from the cache, which has no errors
	if !hasDefault(others) {
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	_, err := i.options.Client.NetworkingV1().IngressClasses().Create(ctx, class, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create the IngressClass %s: %w", ClassName, err)
}

func hasDefault(classes []*networkingv1.IngressClass) bool {
	for _, c := range classes {
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			return true
		}
	}
	return false
}

// addresses returns the addresses where clients reach the proxy: as those of load balancers, the ExternalIPs of the
// node, or its InternalIPs if it has none.
func (i *Ingress) addresses() []string {
	if a := i.options.Address; a.IsValid() && !a.IsUnspecified() {
		return []string{a.String()}
	}
	node, err := i.options.Informers.Core().V1().Nodes().Lister().Get(i.options.Node)
	if err == nil {
		for _, kind := range []v1.NodeAddressType{v1.NodeExternalIP, v1.NodeInternalIP} {
			if found := ofKind(node, kind); len(found) > 0 {
				return found
			}
		}
	}
	if i.options.Fallback.IsValid() {
		return []string{i.options.Fallback.String()}
	}
	return nil
}

func ofKind(node *v1.Node, kind v1.NodeAddressType) (found []string) {
	for _, a := range node.Status.Addresses {
		if _, err := netip.ParseAddr(a.Address); err == nil && a.Type == kind {
			found = append(found, a.Address)
		}
	}
	return found
}

// writeStatuses writes the addresses to the Ingresses that are served, and removes them from those that are no
// longer.
func (i *Ingress) writeStatuses(ctx context.Context, ours []*networkingv1.Ingress) error {
	var want networkingv1.IngressLoadBalancerStatus
	for _, a := range i.addresses() {
		want.Ingress = append(want.Ingress, networkingv1.IngressLoadBalancerIngress{IP: a})
	}
	var failed []error
	now := map[string]bool{}
	for _, ingress := range ours {
		now[ingress.Namespace+"/"+ingress.Name] = true
		failed = append(failed, i.writeStatus(ctx, ingress, want))
	}
	lister := i.options.Informers.Networking().V1().Ingresses().Lister()
	for key := range i.served {
		if now[key] {
			continue
		}
		namespace, name, _ := strings.Cut(key, "/")
		left, err := lister.Ingresses(namespace).Get(name)
		if err == nil && equality.Semantic.DeepEqual(left.Status.LoadBalancer, want) {
			failed = append(failed, i.writeStatus(ctx, left, networkingv1.IngressLoadBalancerStatus{}))
			now[key] = true // until the informer shows that the addresses are gone
		}
	}
	i.served = now
	return errors.Join(failed...)
}

// writeStatus patches the status, so that a change of another part of the Ingress at the same time is no conflict. The
// UID in the patch is a precondition, so that a later Ingress with the same name is not changed.
func (i *Ingress) writeStatus(ctx context.Context, ingress *networkingv1.Ingress, want networkingv1.IngressLoadBalancerStatus) error {
	if equality.Semantic.DeepEqual(ingress.Status.LoadBalancer, want) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": ingress.UID},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": want.Ingress}},
	})
	if err != nil {
		return err
	}
	_, err = i.options.Client.NetworkingV1().Ingresses(ingress.Namespace).Patch(ctx, ingress.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // the informer brings the deletion
		return nil
	}
	return fmt.Errorf("write the status of Ingress %s/%s: %w", ingress.Namespace, ingress.Name, err)
}
