// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/kindred-project/kindred/internal/join"
)

// TestAdmission: a machine may wait until the cluster knows its token, and does not wait for what does not pass.
func TestAdmission(t *testing.T) {
	config := sharedConfig(t, "")
	config.Etcd.Servers = nil
	c, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	certificates, err := cert.ParseCertsPEM(c.keys.Cluster.CertPEM)
	if err != nil {
		t.Fatal(err)
	}
	invitation := join.Invitation{Server: c.Server(), Token: "abcdef.0123456789abcdef", Hash: join.HashOf(certificates[0])}
	said := make(chan string, 10)
	admit := func(i join.Invitation) error {
		machine := sharedConfig(t, "")
		machine.NodeName, machine.Notice = "one", func(line string) { said <- line }
		if err := AdmitNode(t.Context(), machine, i); err != nil {
			return err
		}
		if known, err := join.HasCertificate(machine.Dir.PKI(), "one", time.Now()); err != nil || !known {
			t.Errorf("the machine has a certificate: %v, %v", known, err)
		}
		return nil
	}
	if err := admit(invitation); err == nil || !strings.Contains(err.Error(), "admits no machines") || len(said) > 0 {
		t.Errorf("without a wait: %v, said %d lines", err, len(said))
	}
	invitation.Wait = 2 * admitInterval
	if err := admit(invitation); err == nil || !strings.Contains(err.Error(), "admits no machines") || !strings.Contains(<-said, "waiting for the server: ") {
		t.Errorf("after the wait: %v", err)
	}
	invitation.Wait = time.Minute
	admitted := make(chan error, 1)
	go func() { admitted <- admit(invitation) }()
	<-said // it waits
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	offer := join.Offer{Server: c.Server(), CA: c.keys.Cluster.CertPEM, Token: invitation.Token, Expires: time.Now().Add(time.Hour)}
	if _, err := join.Invite(t.Context(), client, offer); err != nil {
		t.Fatal(err)
	}
	if err := <-admitted; err != nil {
		t.Errorf("once the token is known: %v", err)
	}
	other := invitation
	other.Hash = "sha256:" + strings.Repeat("0", 64)
	if err := admit(other); err == nil || !strings.Contains(err.Error(), "this is another cluster, or somebody is in between") {
		t.Errorf("another authority: %v", err)
	}
}
