// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/rbac/bootstrap"
	"github.com/kindred-project/kindred/internal/registry/scheduling"
)

// systemNamespaces are created first.
var systemNamespaces = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// EnsureSystem creates what every cluster has: the system namespaces, the
// bootstrap roles, the system priority classes and the Service of the API. It
// writes only what is missing. The server must be running.
func (s *Server) EnsureSystem(parent context.Context) error {
	client, err := kubernetes.NewForConfig(s.Config(apiserverUser))
	if err != nil {
		return err
	}
	if err := s.awaitInformers(parent); err != nil {
		return err
	}
	for _, name := range systemNamespaces {
		if err := ensureNamespace(parent, client, name); err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	group, ctx := errgroup.WithContext(parent)
	group.Go(func() error { return bootstrap.Ensure(ctx, client) })
	group.Go(func() error { return ensurePriorityClasses(ctx, client) })
	group.Go(func() error { return s.services.ensure(ctx) })
	group.Go(func() error { return s.fairness.ensure(ctx) })
	group.Go(func() error { return s.ensureTracking(ctx, client) })
	if err := group.Wait(); err != nil {
		return err
	}
	go s.keepTracking(s.lifetime, client, s.clock.NewTicker(trackingInterval))
	return s.awaitPolicy(parent)
}

// awaitInformers waits until the server's informers are synced. Until then admission makes requests
// wait, up to a limit.
func (s *Server) awaitInformers(ctx context.Context) error {
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
	for policy := bootstrap.Default(); !s.knows(policy); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
	return nil
}

func (s *Server) knows(policy bootstrap.Policy) bool {
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

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return ignoreExisting(err)
}

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
		if _, err := client.SchedulingV1().PriorityClasses().Create(ctx, &class, metav1.CreateOptions{}); ignoreExisting(err) != nil {
			return fmt.Errorf("create priority class %s: %w", class.Name, err)
		}
	}
	return nil
}

// trackingName is the ConfigMap with the day since when uses of tokens in Secrets are recorded
// (KEP-2799): a token without a recorded use has not been used since.
const trackingName = "kube-apiserver-legacy-service-account-token-tracking"

func (s *Server) ensureTracking(ctx context.Context, client kubernetes.Interface) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	today := map[string]string{"since": s.clock.Now().UTC().Format(time.DateOnly)}
	found, err := maps.Get(ctx, trackingName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: trackingName}, Data: today}, metav1.CreateOptions{})
		return ignoreExisting(err)
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

// trackingInterval is how long it takes at most to recreate a lost ConfigMap, as upstream.
const trackingInterval = 30 * time.Minute

// keepTracking recreates the ConfigMap if it is lost or invalid: without it no token is ever
// invalidated.
func (s *Server) keepTracking(ctx context.Context, client kubernetes.Interface, ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := s.ensureTracking(ctx, client); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot record since when uses of tokens are recorded, will retry", "configmap", trackingName)
		}
	}
}

// ignoreExisting ignores that another server has created the object first.
func ignoreExisting(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
