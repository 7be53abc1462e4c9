// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/join"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/part"
)

// JoinNode makes this machine a node of a cluster that runs elsewhere, and returns when the node is ready. A machine that has joined
// before needs no invitation.
func JoinNode(ctx context.Context, config Config, invitation join.Invitation) (*Node, error) {
	return startNode(ctx, config, func(n *Node, ctx context.Context, steps *steps) error { return n.join(ctx, invitation, steps) })
}

// AdmitNode gets this machine the certificate of a node, so that JoinNode needs no invitation later.
func AdmitNode(ctx context.Context, config Config, invitation join.Invitation) error {
	lock, err := config.Dir.Lock()
	if err != nil {
		return err
	}
	_, _, err = (&Node{config: config}).credentials(ctx, invitation)
	return errors.Join(err, lock.Release())
}

// join gets credentials, registers the node, and starts its agent with the ranges that the cluster gives it.
func (n *Node) join(ctx context.Context, invitation join.Invitation, steps *steps) error {
	given := len(n.config.NodeIPs) > 0
	credentials, known, err := n.credentials(ctx, invitation)
	if err != nil {
		return err
	}
	steps.done("certificates")
	credentials.OnWrongClock(n.config.notice)
	n.server = credentials.Config().Host
	client, err := kubernetes.NewForConfig(credentials.Config())
	if err != nil {
		return err
	}
	adopt := n.adopt
	if known {
		adopt = n.adoptAgain
	}
	if err := adopt(ctx, client); err != nil {
		return err
	}
	steps.done("registration")
	shared := informers.NewSharedInformerFactory(client, 0)
	if err := n.learnServers(shared, credentials); err != nil {
		return err
	}
	m := prepareMachine(ctx, n.config, steps)
	if err := m.Join(ctx, n.apiElsewhere(credentials, shared), n.parts); err != nil {
		return err
	}
	n.parts.Start("certificates", credentials.Run)
	if !given {
		n.parts.Start("address", n.watchAddress)
	}
	return n.writeInstance(m, n.server)
}

// credentials opens the credentials of the node, and reports whether they were known already. A machine that has not joined yet, or
// whose certificate has expired, gets them by an invitation.
func (n *Node) credentials(ctx context.Context, invitation join.Invitation) (_ *join.Credentials, known bool, err error) {
	if _, err := os.Stat(n.config.Dir.Etcd()); err == nil {
		return nil, false, fmt.Errorf("a cluster of its own has run in %s; join with another --data-dir, or remove it with \"kindred reset\"", n.config.Dir.Root)
	}
	member, err := join.ReadMembership(n.config.Dir.Membership())
	if err != nil {
		return nil, false, err
	}
	if member.Server != "" {
		if known, err = join.HasCertificate(n.config.Dir.PKI(), n.config.NodeName, n.config.Clock.Now()); err != nil {
			return nil, false, err
		}
	}
	switch {
	case known:
		member.Server = cmp.Or(invitation.Server, member.Server) // the server may have moved; its authority has not changed
	case invitation.Token == "":
		return nil, false, errors.New("this machine has no valid certificate of a node: join with a token, which \"kindred token create\" makes on the server")
	default:
		if member, err = n.accept(ctx, invitation); err != nil {
			return nil, false, err
		}
	}
	if err := member.Write(n.config.Dir.Membership()); err != nil {
		return nil, false, err
	}
	credentials, err := join.Open(member, n.config.Dir.PKI(), n.config.Clock)
	return credentials, known, err
}

// accept gets the cluster's authority and a certificate. It waits for a cluster that cannot be joined yet, if the invitation says so.
func (n *Node) accept(ctx context.Context, invitation join.Invitation) (member join.Membership, err error) {
	deadline := n.config.Clock.Now().Add(invitation.Wait)
	passes := func(err error) bool { return join.IsPending(err) && n.config.Clock.Now().Before(deadline) }
	err = n.repeat(ctx, admitInterval, passes, func() error {
		ca, err := join.Discover(ctx, invitation, n.config.Clock)
		if err != nil {
			return err
		}
		member = join.Membership{Server: invitation.Server, Node: n.config.NodeName, CA: ca}
		return join.Request(ctx, invitation, ca, n.config.Dir.PKI(), n.config.NodeName)
	})
	return member, err
}

const (
	// admitInterval is the time between two attempts to be admitted. A new machine is waited for.
	admitInterval = 250 * time.Millisecond
	// reachInterval is the time between two attempts of a node to reach the server.
	reachInterval = 2 * time.Second
)

// adoptAgain waits for a server that does not answer as it should: this machine, a node already, may have started before it.
func (n *Node) adoptAgain(ctx context.Context, client kubernetes.Interface) error {
	return n.repeat(ctx, reachInterval, func(error) bool { return true }, func() error { return n.adopt(ctx, client) })
}

// repeat attempts something until it succeeds, or fails with an error that does not pass. It says what it waits for.
func (n *Node) repeat(ctx context.Context, interval time.Duration, passes func(error) bool, attempt func() error) error {
	said := ""
	for {
		err := attempt()
		if err == nil || ctx.Err() != nil || !passes(err) {
			return err
		}
		if line := fmt.Sprintf("waiting for the server: %v", err); line != said && n.config.Notice != nil {
			n.config.Notice(line)
			said = line
		}
		select {
		case <-n.config.Clock.After(interval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// adopt registers the node, and takes over the ranges of the cluster.
func (n *Node) adopt(ctx context.Context, client kubernetes.Interface) error {
	if len(n.config.NodeIPs) == 0 {
		address, err := join.AddressTowards(n.server)
		if err != nil {
			return err
		}
		n.config.NodeIPs = []netip.Addr{address}
	}
	registered, err := join.Register(ctx, client, n.initial())
	if err != nil {
		return err
	}
	if n.config.PodCIDRs, err = join.Prefixes(registered.Spec.PodCIDRs); err != nil {
		return fmt.Errorf("the ranges of the pods of node %s: %w", registered.Name, err)
	}
	n.config.ServiceCIDRs, err = join.ServiceRanges(ctx, client)
	return err
}

// ErrMoved is why a node cannot continue whose machine has another address than at its start. Joined again, it has the new one.
var ErrMoved = errors.New("the address of this machine has changed")

// addressInterval is the time between two looks at the address of the machine. An upstream kubelet looks every 10 s
// (nodeStatusUpdateFrequency).
const addressInterval = 10 * time.Second

// watchAddress fails when this machine reaches the server from another address, twice in a row.
func (n *Node) watchAddress(ctx context.Context) error {
	ticker := n.config.Clock.NewTicker(addressInterval)
	defer ticker.Stop()
	known := n.config.NodeIPs[0]
	for last := known; ; {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
		now, err := join.AddressTowards(n.server)
		if err != nil {
			continue // without a route there is no other address
		}
		if now != known && now == last {
			return fmt.Errorf("%w from %s to %s", ErrMoved, known, now)
		}
		last = now
	}
}

// initial returns the Node as it is registered. The agent adds the rest.
func (n *Node) initial() *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.config.NodeName, Labels: map[string]string{corev1.LabelHostname: n.config.NodeName}},
		Spec:       corev1.NodeSpec{Taints: n.config.Kubelet.RegisterWithTaints, ProviderID: n.config.Kubelet.ProviderID},
	}
	for _, address := range n.config.NodeIPs {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address.String()})
	}
	return node
}

// apiElsewhere returns the node's access to an API in another process. All parts of the node act as the node.
func (n *Node) apiElsewhere(credentials *join.Credentials, shared informers.SharedInformerFactory) machine.API {
	return machine.API{
		ConfigFor: func(as part.Identity) *rest.Config {
			config := credentials.Config()
			config.UserAgent = as.UserAgent()
			return config
		},
		Informers: shared, StartInformers: func() { shared.StartWithContext(n.parts.Context()) },
		Serving: func(names pki.Names) (func() *tls.Certificate, error) {
			return credentials.Serving(names.IPs)
		},
		ClusterCA: credentials.CA(), Elsewhere: true,
	}
}

// learnServers keeps the addresses of the cluster's servers, so that the node reaches another one when its own is lost, also after
// a restart.
func (n *Node) learnServers(shared informers.SharedInformerFactory, credentials *join.Credentials) error {
	learn := func(object any) {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if !ok {
			return
		}
		member, changed := credentials.Learn(slice)
		if !changed {
			return
		}
		if err := member.Write(n.config.Dir.Membership()); err != nil {
			klog.ErrorS(err, "Cannot store the addresses of the cluster's servers")
		}
	}
	_, err := shared.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: learn, UpdateFunc: func(_, object any) { learn(object) },
	})
	return err
}
