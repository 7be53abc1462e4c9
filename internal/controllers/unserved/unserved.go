// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unserved records an event on each object that has a field which nothing in the cluster acts on. The name of
// the event follows from the object's UID and the text, so that it is recorded once, whichever process finds it.
package unserved

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/unserved"
)

// Name is the controller's identity.
const Name = "unserved-controller"

const (
	workers = 1
	// grace is the time that another program has to act on an object.
	grace = 10 * time.Second
	// memory is the time after its creation in which an object gets events. The API keeps events for an hour, and
	// with them the record that one was written; a restart after that must not repeat it.
	memory = time.Hour
)

// Add registers one controller for each kind that has facts.
func Add(env control.Env) error {
	for _, kind := range []struct {
		name, kind string
		new        func() client.Object
	}{
		{"pods", "Pod", func() client.Object { return &corev1.Pod{} }},
		{"jobs", "Job", func() client.Object { return &batchv1.Job{} }},
		{"services", "Service", func() client.Object { return &corev1.Service{} }},
		{"volumes", "PersistentVolume", func() client.Object { return &corev1.PersistentVolume{} }},
		{"ingresses", "Ingress", func() client.Object { return &networkingv1.Ingress{} }},
		{"signingrequests", "CertificateSigningRequest", func() client.Object { return &certificatesv1.CertificateSigningRequest{} }},
	} {
		r := &reconciler{client: env.Client, clock: env.Clock, kind: kind.kind, new: kind.new}
		matches := predicate.NewPredicateFuncs(func(o client.Object) bool { return len(r.find(context.Background(), o)) > 0 })
		if err := ctrl.NewControllerManagedBy(env.Manager).Named(Name+"-"+kind.name).WithOptions(env.Options(workers)).
			For(kind.new(), builder.WithPredicates(matches)).Complete(r); err != nil {
			return err
		}
	}
	return nil
}

type reconciler struct {
	client client.Client
	clock  clock.PassiveClock
	kind   string
	new    func() client.Object
}

// find returns the facts that this controller records. Those of a template are recorded on its pods.
func (r *reconciler) find(ctx context.Context, o client.Object) (found []unserved.Finding) {
	if o.GetDeletionTimestamp() != nil || r.clock.Since(o.GetCreationTimestamp().Time) >= memory {
		return nil
	}
	for _, f := range unserved.Find(o, cluster{ctx, r.client}) {
		if f.EventBy == "" && f.Kind == r.kind {
			found = append(found, f)
		}
	}
	return found
}

// Reconcile records what holds for one object.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := r.new()
	if err := r.client.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var result reconcile.Result
	for _, f := range r.find(ctx, o) {
		if f.Waits {
			if unserved.Acted(o) {
				continue
			}
			if left := grace - r.clock.Since(o.GetCreationTimestamp().Time); left > 0 {
				result.RequeueAfter = left
				continue
			}
		}
		if err := r.record(ctx, o, f.Text); err != nil {
			return ctrl.Result{}, err
		}
	}
	return result, nil
}

// record creates the event, unless there is one.
func (r *reconciler) record(ctx context.Context, o client.Object, text string) error {
	ref, err := reference.GetReference(r.client.Scheme(), o)
	if err != nil {
		return err
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := metav1.NewTime(r.clock.Now())
	err = r.client.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: eventName(o, text)},
		InvolvedObject: *ref, Type: corev1.EventTypeWarning, Reason: unserved.Reason, Message: text,
		Source: corev1.EventSource{Component: Name}, ReportingController: Name,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	// In a namespace that is being deleted, nothing can be created.
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// eventName returns a name that depends on the object's UID and the text alone.
func eventName(o client.Object, text string) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s\x00%s", o.GetUID(), text)
	// The name of an event is a DNS subdomain: at most 253 characters.
	return fmt.Sprintf("%.236s.%016x", o.GetName(), hash.Sum64())
}

// cluster reads from the controllers' shared cache.
type cluster struct {
	ctx    context.Context
	client client.Client
}

func (c cluster) Nodes() []*corev1.Node {
	list := &corev1.NodeList{}
	if err := c.client.List(c.ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	return pointers(list.Items)
}

func (c cluster) IngressClasses() []*networkingv1.IngressClass {
	list := &networkingv1.IngressClassList{}
	if err := c.client.List(c.ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	return pointers(list.Items)
}

func (c cluster) HasResourceClaim(namespace, name string) bool {
	err := c.client.Get(c.ctx, client.ObjectKey{Namespace: namespace, Name: name}, &resourcev1.ResourceClaim{})
	return !apierrors.IsNotFound(err)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
