// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// recorder is a server that records requests and fails them.
type recorder struct {
	mu    sync.Mutex
	asked []http.Header
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, request.Header.Clone())
	http.NotFound(w, request)
}

// record runs a command line against a recorder and returns the headers that it sent.
func record(t *testing.T, args ...string) []http.Header {
	t.Helper()
	r := &recorder{}
	server := httptest.NewServer(r)
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "KUBECONFIG", path)
	}
	_, errOut, _ := process(t, nil, args...)
	if len(r.asked) == 0 {
		t.Fatalf("%v sent no request: %s", args, errOut)
	}
	return r.asked
}

// TestImpersonation: each verb that connects to a cluster impersonates the given user in every
// request.
func TestImpersonation(t *testing.T) {
	for verb, args := range map[string][]string{
		"tree": {"tree", "pod/x"}, "why": {"why", "pod/x"}, "delete": {"delete", "--yes", "pod/x"},
		"undelete": {"undelete", "pod/x"}, "undelete --list": {"undelete", "--list"}, "lint": {"lint"},
		"move": {"move", "pod/x", "--to", "KUBECONFIG", "--dry-run"},
	} {
		t.Run(verb, func(t *testing.T) {
			args = append(args, "--kubeconfig", "KUBECONFIG", "--as", "jane", "--as-group", "devs", "--as-group", "ops", "--as-uid", "7")
			for _, header := range record(t, args...) {
				got := []string{header.Get("Impersonate-User"), strings.Join(header["Impersonate-Group"], " "), header.Get("Impersonate-Uid")}
				if diff := cmp.Diff([]string{"jane", "devs ops", "7"}, got); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestImpersonationUsage(t *testing.T) {
	for _, flag := range []string{"--as-group", "--as-uid"} {
		_, errOut, code := process(t, nil, "tree", "pod/x", "--kubeconfig", "/nowhere", flag, "x")
		if code != exitUsage || !strings.Contains(errOut, "need --as;") {
			t.Errorf("%s: exit status %d, %s", flag, code, errOut)
		}
	}
}

// TestUserAgents: in audit logs, kubectl's requests have kubectl's user agent, and those of
// kindred's verbs have kindred's.
func TestUserAgents(t *testing.T) {
	for want, args := range map[string][]string{
		"kubectl/v": {"kubectl", "--kubeconfig", "KUBECONFIG", "get", "pods"},
		"kindred/":  {"tree", "pod/x", "--kubeconfig", "KUBECONFIG"},
	} {
		for _, header := range record(t, args...) {
			if got := header.Get("User-Agent"); !strings.HasPrefix(got, want) || !strings.Contains(got, ") kubernetes/") {
				t.Errorf("%v: user agent %q, want %s...", args, got, want)
			}
		}
	}
}
