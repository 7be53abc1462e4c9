// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// TestCertificatesAreRotated: after "kindred cert rotate" a running cluster serves a new certificate within a minute, the kubeconfig has
// one too, and the earlier kubeconfig works as long as its certificate is valid.
func TestCertificatesAreRotated(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node")
	if r := c.run("cert", "list"); r.code != 0 || !strings.Contains(r.out, "kindred-ca") || !strings.Contains(r.out, "kube-apiserver") {
		t.Errorf("cert list: %d, %q, %s", r.code, r.out, r.err)
	}
	s := newSession(t, c)
	before, earlier := c.serial(t), c.client(t)
	kubeconfig, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if r := c.run("cert", "rotate"); r.code != 0 || !strings.Contains(r.out, "admin") || !strings.Contains(r.out, "apiserver") {
		t.Errorf("cert rotate: %d, %q, %s", r.code, r.out, r.err)
	}
	s.within(90*time.Second, "new certificates", func() error {
		now, err := os.ReadFile(c.kubeconfig())
		if err != nil {
			return err
		}
		if serial := c.serial(t); serial == before || string(now) == string(kubeconfig) {
			return errors.New("not yet")
		}
		return nil
	})
	s.kubectl("get", "namespace", "default")
	if _, err := earlier.Discovery().ServerVersion(); err != nil {
		t.Errorf("with the earlier certificate: %v", err)
	}
}

// serial returns the serial number of the certificate that the API server presents.
func (c *cluster) serial(t *testing.T) string {
	t.Helper()
	server, err := url.Parse(c.config(t).Host)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := tls.Dial("tcp", server.Host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return fmt.Sprint(connection.ConnectionState().PeerCertificates[0].SerialNumber)
}
