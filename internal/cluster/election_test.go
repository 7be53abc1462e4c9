// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
	"github.com/kindred-project/kindred/internal/servers"
	"github.com/kindred-project/kindred/internal/storage"
	"github.com/kindred-project/kindred/test/etcd"
)

// TestElection: of two servers on one etcd, one leads. The other takes over when that one stops, or loses its lease, and goes on
// with its simulated nodes. A server that has lost its lease cannot write as a leader, and can lead again.
func TestElection(t *testing.T) {
	store := etcd.Local(t, t.TempDir()).Address
	first := startShared(t, store, nil, 2)
	second := startShared(t, store, first, 0)
	if first.term.Load() == nil || second.term.Load() != nil {
		t.Fatal("not the first server leads, or both do")
	}
	client, err := kubernetes.NewForConfig(second.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	runs(t, client, "a")
	reviews(t, client)

	old := first.term.Load()
	steal(t, client)
	lost := time.Now()
	eventually(t, "the leader gives up", func() bool { return first.term.Load() != old })
	t.Logf("the leader gave up after %s", time.Since(lost).Round(time.Millisecond))
	eventually(t, "a server leads", func() bool { return first.term.Load() != nil || second.term.Load() != nil })
	runs(t, client, "b")
	stale, err := kubernetes.NewForConfig(old.api.Config(adminUser))
	if err != nil {
		t.Fatal(err)
	}
	if err := stale.CoreV1().Pods("default").Delete(t.Context(), "any", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a stale leader's request that writes nothing: %v", err)
	}
	if err := stale.AppsV1().Deployments("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a stale leader's deletion: %v", err)
	}

	// A leader that is stopped while another one leads for a while, and renews its lease after that.
	if _, err := first.backend.NewFence(t.Context(), "nowhere", func() {}); err != nil {
		t.Fatal(err)
	}
	runs(t, client, "c")

	leader, other := first, second
	if second.term.Load() != nil {
		leader, other = second, first
	}
	if client, err = kubernetes.NewForConfig(other.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	leader.Stop()
	stopped := time.Now()
	eventually(t, "the other server leads", func() bool { return other.term.Load() != nil })
	if took := time.Since(stopped); took > 2*time.Second {
		t.Errorf("after a clean stop another server leads after %s", took)
	}
	runs(t, client, "d")
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 {
		t.Errorf("%d nodes, %v", len(nodes.Items), err)
	}
}

// startShared starts a server on an etcd, which joins the cluster of another one, unless that is nil.
func startShared(t *testing.T, store string, other *Cluster, simulatedNodes int) *Cluster {
	t.Helper()
	config := sharedConfig(t, store)
	config.SimulatedNodes = simulatedNodes
	if other != nil {
		config.Join = invite(t, other)
	}
	c, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func sharedConfig(t *testing.T, store string) Config {
	t.Helper()
	dir, err := datadir.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Dir: dir, BindAddress: net.IPv4(127, 0, 0, 1), Etcd: storage.External{Servers: []string{"http://" + store}}, History: storage.DefaultRetention,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Clock: clock.RealClock{},
		Notice: func(line string) { t.Log(line) },
	}
}

// invite lets a machine become a server of a cluster.
func invite(t *testing.T, c *Cluster) join.ServerInvitation {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	invitation, err := join.Invite(t.Context(), client, join.Offer{Server: c.Server(), CA: c.keys.Cluster.CertPEM, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	files, err := pki.Shared(c.config.Dir.PKI())
	if err != nil {
		t.Fatal(err)
	}
	server, err := join.InviteServer(t.Context(), client, invitation, files)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// TestServersThatAreRefused: a server needs the keys of the cluster, which only the whole invitation gives it. The keys are collected
// with the token.
func TestServersThatAreRefused(t *testing.T) {
	store := etcd.Local(t, t.TempDir()).Address
	c := startShared(t, store, nil, 0)
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	whole := invite(t, c)
	other, node := whole, whole
	other.Key = strings.Repeat("0", len(other.Key))
	node.Invitation, err = join.Invite(t.Context(), client, join.Offer{Server: c.Server(), CA: c.keys.Cluster.CertPEM, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		invitation join.ServerInvitation
		want       string
	}{
		"a cluster of its own": {join.ServerInvitation{}, "the store belongs to a cluster with the authority " + whole.Hash},
		"another key":          {other, "the certificate key is not the one of the token"},
		"a node's token":       {node, "the token admits nodes and no servers"},
	} {
		config := sharedConfig(t, store)
		config.Join = test.invitation
		refused, err := Start(t.Context(), config)
		if err == nil {
			refused.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := join.Revoke(t.Context(), client, whole.Token); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keys are collected with the token", func() bool {
		secrets, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(secrets.Items, func(s corev1.Secret) bool { return strings.HasPrefix(s.Name, "kindred-server-keys-") })
	})
}

// reviews asks the server of a client for the tree of the Deployment a.
func reviews(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	tree := &ownership.OwnershipTree{Spec: ownership.OwnershipTreeSpec{}}
	tree.Spec.Object = ownership.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "a"}
	body, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.CoreV1().RESTClient().Post().AbsPath("/apis/ownership.kindred.dev/v1alpha1/ownershiptrees").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).DoRaw(t.Context())
	if err != nil || strings.Count(string(answer), `"kind":"Pod"`) < 2 {
		t.Errorf("the tree from a server that does not lead: %.300s, %v", answer, err)
	}
}

// steal lets a server that does not exist hold the lease of the leader for a while.
func steal(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	eventually(t, "the lease can be written", func() bool {
		lease, err := leases.Get(t.Context(), servers.LeaderLease, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("nowhere"), new(int32(leaseDuration.Seconds()))
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
}

// runs creates a Deployment of two pods and waits until they run.
func runs(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pods of "+name+" run", func() bool {
		d, err := client.AppsV1().Deployments("default").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == 2
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
