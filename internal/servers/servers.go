// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers says which servers a cluster has, and which of them leads. Each server that shares its store keeps a Lease in
// kube-system, with its URL and version; one more Lease is held by the server that leads (leader election of client-go).
package servers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// LeaderLease is the name of the Lease whose holder leads.
const LeaderLease = "kindred-leader"

const (
	// prefix begins the names of the servers' Leases, and label is on each of them.
	prefix = "kindred-server-"
	label  = "kindred.dev/server"
	// identity is the label of the Leases of Kubernetes' API servers (KEP-1965), and its value.
	identity, apiServer = "apiserver.kubernetes.io/identity", "kube-apiserver"
	// The URL and the version of a server are annotations of its Lease.
	urlAnnotation     = "kindred.dev/url"
	versionAnnotation = "kindred.dev/version"
)

// Selector selects the servers' Leases.
const Selector = identity + "=" + apiServer

const (
	// renewal is the time between two renewals of a server's Lease, and lifetime the time after which a server that has not
	// renewed it is lost.
	renewal  = 5 * time.Second
	lifetime = 15 * time.Second
	// forgotten is the time after which the Lease of a lost server is deleted.
	forgotten = 24 * time.Hour
)

// Server is a server of a cluster.
type Server struct {
	Name string
	// URL is that of its API for other machines, unless it listens on loopback only.
	URL     string
	Version string
	// Seen is when the server has last renewed its Lease, by its own clock.
	Seen time.Time
	// Leads is set if the server runs the controllers, the scheduler and the garbage collector.
	Leads bool
}

// LeaseOf returns the name of the Lease of a server.
func LeaseOf(server string) string { return prefix + server }

// IsLost reports whether a server has not renewed its Lease for too long.
func (s Server) IsLost(now time.Time) bool { return now.Sub(s.Seen) > lifetime }

// List returns the servers by name. A cluster whose server does not share its store has none.
func List(ctx context.Context, client kubernetes.Interface) ([]Server, error) {
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	all, err := leases.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil || len(all.Items) == 0 {
		return nil, err
	}
	leader, err := leaderOf(ctx, client)
	if err != nil {
		return nil, err
	}
	var found []Server
	for i := range all.Items {
		server := Of(&all.Items[i])
		server.Leads = server.Name == leader
		found = append(found, server)
	}
	slices.SortFunc(found, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

// Leader returns the server that leads.
func Leader(ctx context.Context, client kubernetes.Interface) (Server, error) {
	name, err := leaderOf(ctx, client)
	if err != nil {
		return Server{}, err
	}
	if name == "" {
		return Server{}, fmt.Errorf("no server leads at present")
	}
	lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, LeaseOf(name), metav1.GetOptions{})
	if err != nil {
		return Server{}, fmt.Errorf("server %s, which leads: %w", name, err)
	}
	leader := Of(lease)
	leader.Leads = true
	return leader, nil
}

// leaderOf returns the name of the server that leads; empty if none does.
func leaderOf(ctx context.Context, client kubernetes.Interface) (string, error) {
	lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, LeaderLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), err
}

// Of returns the server that keeps a Lease.
func Of(lease *coordinationv1.Lease) Server {
	return Server{
		Name: ptr.Deref(lease.Spec.HolderIdentity, ""), URL: lease.Annotations[urlAnnotation], Version: lease.Annotations[versionAnnotation],
		Seen: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
	}
}

// Announce keeps the Lease of a server until ctx is done, and deletes it then. At first it deletes the Lease that the server had before
// a crash, because others ask a server for its resources when its Lease is new, and the Leases of servers that have been lost for a day.
func Announce(ctx context.Context, client kubernetes.Interface, server Server, clock clock.WithTicker) error {
	ticker := clock.NewTicker(renewal)
	defer ticker.Stop()
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	if err := leases.Delete(ctx, LeaseOf(server.Name), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot delete the earlier Lease of this server", "server", server.Name)
	}
	for {
		if err := renew(ctx, client, server, clock.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot renew the Lease of this server, will retry", "server", server.Name)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = leases.Delete(ctx, LeaseOf(server.Name), metav1.DeleteOptions{}) // or it expires
			return nil
		}
	}
}

// renew writes the Lease of a server. If that is new, it deletes those of servers that are long lost.
func renew(ctx context.Context, client kubernetes.Interface, server Server, now time.Time) error {
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, LeaseOf(server.Name), metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	if missing {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: prefix + server.Name, Labels: map[string]string{label: server.Name, identity: apiServer}}}
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, urlAnnotation, server.URL)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, versionAnnotation, server.Version)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &server.Name, ptr.To(int32(lifetime.Seconds()))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	if missing {
		if _, err = leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return err
		}
		return forget(ctx, client, now)
	}
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// forget deletes the Leases of servers that have been lost for a day.
func forget(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	all, err := List(ctx, client)
	if err != nil {
		return err
	}
	for _, server := range all {
		if now.Sub(server.Seen) < forgotten {
			continue
		}
		err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, LeaseOf(server.Name), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
