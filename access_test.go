// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred"
)

// TestTwoClustersDoNotShareAccess: each cluster has its own authentication, audit log and
// encryption.
func TestTwoClustersDoNotShareAccess(t *testing.T) {
	dir := t.TempDir()
	file := func(name, kind, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, fmt.Appendf(nil, "apiVersion: %s\n%s\n", kind, content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	record := kindred.NewAuditOptions()
	record.LogOptions.Path = filepath.Join(dir, "audit.log")
	record.PolicyFile = file("policy", "audit.k8s.io/v1\nkind: Policy", "rules: [{level: Metadata, namespaces: [default], resources: [{group: '', resources: [secrets]}]}]")
	const config = "apiserver.config.k8s.io/v1\nkind: "
	strict := kindred.Options{
		DataDir: filepath.Join(dir, "strict"), NoNode: true, Audit: record,
		Authentication:           kindred.AuthenticationOptions{ConfigFile: file("authentication", config+"AuthenticationConfiguration", "anonymous: {enabled: false}")},
		Authorization:            kindred.AuthorizationOptions{ConfigFile: file("authorization", config+"AuthorizationConfiguration", "authorizers: [{type: Node, name: node}, {type: RBAC, name: rbac}]")},
		EncryptionProviderConfig: file("encryption", config+"EncryptionConfiguration", "resources: [{resources: [secrets], providers: [{aescbc: {keys: [{name: one, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}]}}]}]"),
	}
	plain := kindred.Options{DataDir: filepath.Join(dir, "plain"), NoNode: true}
	for _, tt := range []struct {
		name            string
		options         kindred.Options
		welcome, onDisk bool
	}{{"strict", strict, false, false}, {"plain", plain, true, true}} {
		cluster := startWith(t, tt.options)
		t.Cleanup(func() {
			cluster.Stop()
			if got := contains(t, filepath.Join(tt.options.DataDir, "etcd"), "watchword"); got != tt.onDisk {
				t.Errorf("%s: a secret is on disk unencrypted: %t", tt.name, got)
			}
		})
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tt.name}, StringData: map[string]string{"word": "watchword"}}
		if _, err := client(t, cluster).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		outside, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		_, err = kubernetes.NewForConfigOrDie(rest.AnonymousClientConfig(outside)).ServerVersion()
		if tt.welcome && err != nil || !tt.welcome && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: an anonymous request gets %v", tt.name, err)
		}
	}
	content, err := os.ReadFile(record.LogOptions.Path)
	if err != nil {
		t.Fatal(err)
	}
	if log := string(content); !strings.Contains(log, `"name":"strict"`) || strings.Contains(log, `"name":"plain"`) {
		t.Errorf("audit log:\n%s", log)
	}
}

// contains reports whether any file below a directory contains a text.
func contains(t *testing.T, dir, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || strings.Contains(string(content), text)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}
