// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/jws"
	testingclock "k8s.io/utils/clock/testing"
)

const tokenID, tokenSecret = "abcdef", "0123456789abcdef"

// publishing serves a cluster-info with the server's own certificate as authority.
func publishing(t *testing.T, now time.Time, change func(*corev1.ConfigMap)) (server *httptest.Server, authority *x509.Certificate) {
	t.Helper()
	info := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{}}
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		_ = json.NewEncoder(w).Encode(info)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	content, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {Server: server.URL, CertificateAuthorityData: ca}}})
	if err != nil {
		t.Fatal(err)
	}
	signature, err := jws.ComputeDetachedSignature(string(content), tokenID, tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	info.Data["kubeconfig"], info.Data["jws-kubeconfig-"+tokenID] = string(content), signature
	if change != nil {
		change(info)
	}
	return server, server.Certificate()
}

func TestDiscover(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	for name, test := range map[string]struct {
		token  string
		hash   string // of the authority, if empty
		info   func(*corev1.ConfigMap)
		clock  time.Duration
		fails  string
		wanted bool
		later  bool // it may succeed later
	}{
		"right":              {wanted: true},
		"another authority":  {hash: "sha256:00", fails: "this is another cluster, or somebody is in between"},
		"another secret":     {token: tokenID + ".ffffffffffffffff", fails: "the signature of the cluster's authority does not match"},
		"an unknown token":   {token: "ffffff." + tokenSecret, fails: "does not know the token, or it has expired", later: true},
		"no token":           {token: "x", fails: "the token: "},
		"another content":    {info: func(m *corev1.ConfigMap) { m.Data["kubeconfig"] += "\n" }, fails: "does not match"},
		"a clock ahead":      {clock: time.Hour, fails: "1h0m0s ahead of the server's"},
		"a clock behind":     {clock: -10 * time.Minute, fails: "10m0s behind the server's"},
		"a clock a bit off":  {clock: 4 * time.Minute, wanted: true},
		"an empty authority": {info: func(m *corev1.ConfigMap) { delete(m.Data, "jws-kubeconfig-"+tokenID) }, fails: "does not know the token", later: true},
	} {
		t.Run(name, func(t *testing.T) {
			server, authority := publishing(t, now, test.info)
			i := Invitation{Server: server.URL, Token: tokenID + "." + tokenSecret, Hash: HashOf(authority)}
			if test.token != "" {
				i.Token = test.token
			}
			if test.hash != "" {
				i.Hash = test.hash
			}
			ca, err := Discover(t.Context(), i, testingclock.NewFakePassiveClock(now.Add(test.clock)))
			if test.wanted {
				if block, _ := pem.Decode(ca); err != nil || block == nil || string(block.Bytes) != string(authority.Raw) {
					t.Errorf("%q, %v", ca, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.fails) || IsPending(err) != test.later {
				t.Errorf("%v, want %q; pending is %v", err, test.fails, IsPending(err))
			}
		})
	}
}

// TestDiscoverWithoutInfo: a cluster that has made no token yet says what to do.
func TestDiscoverWithoutInfo(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
	}))
	defer server.Close()
	i, clock := Invitation{Server: server.URL, Token: tokenID + "." + tokenSecret}, testingclock.NewFakePassiveClock(time.Now())
	if _, err := Discover(t.Context(), i, clock); err == nil || !strings.Contains(err.Error(), "kindred token create") || !IsPending(err) {
		t.Error(err)
	}
	server.Close()
	if _, err := Discover(t.Context(), i, clock); err == nil || !strings.Contains(err.Error(), "connection refused") || !IsPending(err) {
		t.Errorf("without a server: %v", err)
	}
}
