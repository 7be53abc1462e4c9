// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// manifestFile writes a configuration file for "kindred up".
func manifestFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// encryption returns a configuration that encrypts with one key and can read plain data.
func encryption(t *testing.T, key string) string {
	t.Helper()
	return manifestFile(t, "encryption.yaml", fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aescbc: {keys: [{name: one, secret: %s}]}}, {identity: {}}]
`, key))
}

// onDisk reports whether any file of the store contains a text.
func (c *cluster) onDisk(t *testing.T, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(filepath.Join(c.dir, "etcd"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// refuses starts the cluster with invalid flags, and checks the one line of output.
func (c *cluster) refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	r := c.run(append([]string{"up", "--secure-port", "0", "--no-node"}, args...)...)
	if r.code == 0 || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
		t.Errorf("kindred up %s: exit status %d, %q; want ...%s...", strings.Join(args, " "), r.code, r.err, want)
	}
}

const (
	firstKey  = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY="
	secondKey = "MTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3BxcnN0dXY="
)

// TestEncryptionAtRest: once encryption is configured, Secrets leave no plain text in the store's
// files. Earlier ones can still be read. With the wrong key, or none, the start fails with a clear
// error.
func TestEncryptionAtRest(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node")
	s := inNamespace(t, c, "default")
	s.kubectl("create", "secret", "generic", "before", "--from-literal=word=watchword-before")
	c.terminate(t)
	if !c.onDisk(t, "watchword-before") {
		t.Error("a secret is not in the store's files as it is; what follows proves nothing")
	}

	good := []string{"--encryption-provider-config", encryption(t, firstKey)}
	c.mustStart(t, append(good, "--no-node")...)
	s.prints("watchword-before", "get", "secret", "before", "-o", "go-template={{.data.word | base64decode}}")
	s.kubectl("create", "secret", "generic", "after", "--from-literal=word=watchword-after")
	s.kubectl("create", "configmap", "after", "--from-literal=word=watchword-of-a-map")
	c.terminate(t)
	if c.onDisk(t, "watchword-after") {
		t.Error("a secret is in the store's files as it is")
	}
	if !c.onDisk(t, "watchword-of-a-map") {
		t.Error("a config map is not in the store's files as it is, and nobody wished that")
	}

	c.refuses(t, "secrets in etcd cannot be decrypted with", "--encryption-provider-config", encryption(t, secondKey))
	c.refuses(t, "secrets in etcd are encrypted", "--simulated-nodes", "0")
	c.refuses(t, "--encryption-provider-config", "--encryption-provider-config", "/nowhere")
	c.mustStart(t, append(good, "--no-node")...)
	s.prints("watchword-after", "get", "secret", "after", "-o", "go-template={{.data.word | base64decode}}")
}

// TestAuditLog: the log has one line for each request, without the content of Secrets.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	policy := manifestFile(t, "policy.yaml", `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, namespaces: [default], resources: [{group: "", resources: [secrets]}]}
- {level: None}
`)
	log := filepath.Join(t.TempDir(), "audit.log")
	c := ownCluster(t, "--no-node", "--audit-policy-file", policy, "--audit-log-path", log)
	s := inNamespace(t, c, "default")
	s.kubectl("create", "secret", "generic", "one", "--from-literal=word=watchword")
	s.refused([]string{`User "jane" cannot get resource "secrets"`}, "get", "secret", "one", "--as", "jane")
	c.terminate(t)
	var got []string
	for _, event := range auditEvents(t, log) {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", event.User.Username, event.Verb, event.ResponseStatus.Code, event.ImpersonatedUser.Username)))
	}
	if want := []string{"kubernetes-admin create 201", "kubernetes-admin get 403 jane"}; !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte("watchword")) || bytes.Contains(content, []byte("d2F0Y2h3b3Jk")) {
		t.Error("a secret's content is in the log")
	}
}

type auditEvent struct {
	Verb             string
	UserAgent        string
	User             struct{ Username string }
	ImpersonatedUser struct{ Username string }
	ResponseStatus   struct{ Code int }
}

// auditEvents returns the events of a log.
func auditEvents(t *testing.T, log string) (events []auditEvent) {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var event auditEvent
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		events = append(events, event)
	}
	return events
}

// TestAuditOfAnUndeletion: an undeletion's writes have its caller as user, and a user agent that
// distinguishes them from the caller's other requests.
func TestAuditOfAnUndeletion(t *testing.T) {
	t.Parallel()
	policy := manifestFile(t, "policy.yaml", `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, namespaces: [default], resources: [{group: "", resources: [secrets]}], users: [kubernetes-admin]}
- {level: None}
`)
	log := filepath.Join(t.TempDir(), "audit.log")
	c := ownCluster(t, "--no-node", "--audit-policy-file", policy, "--audit-log-path", log)
	s := inNamespace(t, c, "default")
	s.kubectl("create", "secret", "generic", "one", "--from-literal=word=watchword")
	s.kubectl("delete", "secret", "one")
	s.undelete(`
OBJECT      OUTCOME   NOTES
Secret/one  restored

restored: 1`, "secret/one")
	c.terminate(t)
	var got []string
	for _, event := range auditEvents(t, log) {
		if agent, _, _ := strings.Cut(event.UserAgent, "/"); agent == "ownership-undelete" {
			got = append(got, event.Verb)
		}
	}
	// A dry run, the object, the start of its release, and its release.
	if want := []string{"create", "create", "update", "patch"}; !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// TestWhoAmI: kubectl's whoami and can-i work with the certificate of the kubeconfig, as another
// user, and with a bootstrap token.
func TestWhoAmI(t *testing.T) {
	s := withoutNode(t)
	s.prints("kubernetes-admin", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	s.prints("yes\n", "auth", "can-i", "delete", "nodes", "-A", "-q=false")
	s.prints("jane [developers system:authenticated]", "auth", "whoami", "--as=jane", "--as-group=developers", "-o", "go-template={{.status.userInfo.username}} {{.status.userInfo.groups}}")
	if r := s.try("auth", "can-i", "list", "secrets", "--as=jane"); r.code != 1 || r.out != "no\n" {
		t.Errorf("can-i for jane: exit status %d, %q", r.code, r.out)
	}
	s.kubectl("create", "role", "reader", "--verb=list", "--resource=secrets")
	s.kubectl("create", "rolebinding", "reader", "--role=reader", "--user=jane")
	s.eventually("the role works", func() error {
		if r := s.try("auth", "can-i", "list", "secrets", "--as=jane"); r.code != 0 || r.out != "yes\n" {
			return fmt.Errorf("exit status %d, %q", r.code, r.out)
		}
		return nil
	})

	s.input(`
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-who4m1, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: who4m1, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
`, "apply", "-f", "-", "--namespace=kube-system")
	t.Cleanup(func() { s.try("delete", "secret", "-n", "kube-system", "bootstrap-token-who4m1") })
	config := s.cluster.config(t)
	outside := []string{"--kubeconfig=/dev/null", "--server=" + config.Host, "--certificate-authority=" + manifestFile(t, "ca.pem", string(config.CAData)), "--token=who4m1.0123456789abcdef"}
	s.eventually("the token works", func() error {
		r := s.try(append([]string{"auth", "whoami", "-o", "go-template={{.status.userInfo.username}} {{.status.userInfo.groups}}"}, outside...)...)
		if want := "system:bootstrap:who4m1 [system:bootstrappers system:authenticated]"; r.out != want {
			return fmt.Errorf("exit status %d, %q %s", r.code, r.out, r.err)
		}
		return nil
	})
	if r := s.try(append([]string{"auth", "can-i", "list", "nodes"}, outside...)...); r.code != 1 || !strings.HasPrefix(r.out, "no") {
		t.Errorf("can-i by the token: exit status %d, %q", r.code, r.out)
	}
}
