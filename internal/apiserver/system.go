// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/auth/rbac/bootstrap"
	"github.com/kindred-project/kindred/internal/registry/scheduling"
)

// systemNamespaces are created first.
var systemNamespaces = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// EnsureSystem creates the objects that every cluster has, if they are missing: the system namespaces,
// the bootstrap roles, the system priority classes, the Service of the API, the configuration of API
// priority and fairness, and the ConfigMaps that track tokens in Secrets and that configure extension
// API servers. The server must be running.
func (s *Server) EnsureSystem(parent context.Context) error {
	client, err := kubernetes.NewForConfig(s.Config(apiserverUser))
	if err != nil {
		return err
	}
	if err := s.AwaitInformers(parent); err != nil {
		return err
	}
	s.boot.pass(stepAdmission)
	if err := ensureDefaultClass(parent, client); err != nil {
		return fmt.Errorf("create StorageClass: %w", err)
	}
	if err := ensureNamespaces(parent, client); err != nil {
		return err
	}
	s.boot.pass(stepNamespaces)
	group, ctx := errgroup.WithContext(parent)
	group.Go(func() error { return bootstrap.Ensure(ctx, client, s.policyFeatures()) })
	group.Go(func() error { return s.step(stepPriorityClasses, ensurePriorityClasses(ctx, client)) })
	group.Go(func() error { return s.services.ensure(ctx, s.boot) })
	group.Go(func() error { return s.fairness.ensure(ctx) })
	group.Go(func() error { return s.step(stepTokens, s.ensureTokenTracking(ctx, client)) })
	group.Go(func() error { return s.step(stepTrust, ensureTrust(ctx, client, s.trust)) })
	if err := group.Wait(); err != nil {
		return err
	}
	go s.keepConfigMaps(s.lifetime, client, s.clock.NewTicker(trackingInterval))
	go s.keepNamespaces(s.lifetime, client, s.clock.NewTicker(namespacesInterval))
	return s.step(stepRoles, s.awaitPolicy(parent))
}

// step makes the check of a step succeed unless the step failed with err, which it returns.
func (s *Server) step(name string, err error) error {
	if err == nil {
		s.boot.pass(name)
	}
	return err
}

// AwaitInformers waits until the server's informers are synced. Until then admission makes requests
// wait, up to a limit.
func (s *Server) AwaitInformers(ctx context.Context) error {
	select {
	case <-s.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.informers.WaitForCacheSync(ctx.Done())
	return ctx.Err()
}

// awaitPolicy waits until the authorizer has the bootstrap roles in its cache, so that later
// requests are not refused.
func (s *Server) awaitPolicy(ctx context.Context) error {
	ticker := s.clock.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for policy := bootstrap.Default(s.policyFeatures()); !s.hasPolicy(policy); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
	return nil
}

// hasPolicy reports whether the authorizer's caches have all objects of a policy.
func (s *Server) hasPolicy(policy bootstrap.Policy) bool {
	rbac := s.informers.Rbac().V1()
	for _, o := range policy.ClusterRoles {
		if _, err := rbac.ClusterRoles().Lister().Get(o.Name); err != nil {
			return false
		}
	}
	for _, o := range policy.ClusterRoleBindings {
		if _, err := rbac.ClusterRoleBindings().Lister().Get(o.Name); err != nil {
			return false
		}
	}
	for _, o := range policy.Roles {
		if _, err := rbac.Roles().Lister().Roles(o.Namespace).Get(o.Name); err != nil {
			return false
		}
	}
	for _, o := range policy.RoleBindings {
		if _, err := rbac.RoleBindings().Lister().RoleBindings(o.Namespace).Get(o.Name); err != nil {
			return false
		}
	}
	return true
}

// namespacesInterval is the maximum time until a deleted system namespace is created again, as upstream. Only
// kube-node-lease can be deleted; admission protects the others.
const namespacesInterval = time.Minute

func (s *Server) keepNamespaces(ctx context.Context, client kubernetes.Interface, ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := ensureNamespaces(ctx, client); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot create a system namespace, will retry")
		}
	}
}

func ensureNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range systemNamespaces {
		if err := ensureNamespace(ctx, client, name); err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// ensureNamespace creates a namespace if it does not exist.
func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return ignoreAlreadyExists(err)
}

// ensureDefaultClass creates the default StorageClass in a new cluster, which has no namespace
// kube-system yet. It does not create it again in others, because a user may have deleted it.
func ensureDefaultClass(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: "local-path", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:          "kindred.dev/local-path",
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
	}, metav1.CreateOptions{})
	return ignoreAlreadyExists(err)
}

// ensurePriorityClasses creates the missing system priority classes.
func ensurePriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	existing, err := client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, class := range existing.Items {
		have[class.Name] = true
	}
	for _, class := range scheduling.SystemClasses() {
		if have[class.Name] {
			continue
		}
		if _, err := client.SchedulingV1().PriorityClasses().Create(ctx, &class, metav1.CreateOptions{}); ignoreAlreadyExists(err) != nil {
			return fmt.Errorf("create priority class %s: %w", class.Name, err)
		}
	}
	return nil
}

// trackingName is the ConfigMap with the day on which the server began to record uses of tokens in
// Secrets (KEP-2799). A token without a recorded use has not been used since that day.
const trackingName = "kube-apiserver-legacy-service-account-token-tracking"

// ensureTokenTracking creates the ConfigMap, or sets its day if that is invalid.
func (s *Server) ensureTokenTracking(ctx context.Context, client kubernetes.Interface) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	today := map[string]string{"since": s.clock.Now().UTC().Format(time.DateOnly)}
	found, err := maps.Get(ctx, trackingName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: trackingName}, Data: today}, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	}
	if err != nil {
		return err
	}
	if _, err := time.Parse(time.DateOnly, found.Data["since"]); err == nil {
		return nil
	}
	found.Data = today
	_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

// trackingInterval is the maximum time until a lost ConfigMap is recreated, as upstream for that of tokens.
const trackingInterval = 30 * time.Minute

// keepConfigMaps recreates the ConfigMaps if they are lost or invalid. Without that of tokens, the
// controller that invalidates unused ones does nothing.
func (s *Server) keepConfigMaps(ctx context.Context, client kubernetes.Interface, ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := s.ensureTokenTracking(ctx, client); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot write the ConfigMap that tracks tokens in Secrets, will retry", "configmap", trackingName)
		}
		if err := ensureTrust(ctx, client, s.trust); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot write the ConfigMap for extension API servers, will retry", "configmap", trustName)
		}
	}
}

// ignoreAlreadyExists returns nil if the object exists already: another server has created it first.
func ignoreAlreadyExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
