// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestAnonymous: anonymous callers may only read health and version.
func TestAnonymous(t *testing.T) {
	s := withoutNode(t)
	config := rest.AnonymousClientConfig(s.cluster.config(t))
	status := func(path, token string) int {
		t.Helper()
		c := rest.CopyConfig(config)
		c.BearerToken = token
		client, err := rest.HTTPClientFor(c)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version"} {
		if got := status(path, ""); got != http.StatusOK {
			t.Errorf("%s: %d for an anonymous caller", path, got)
		}
		if got := status(path, "no.such.token"); got != http.StatusUnauthorized {
			t.Errorf("%s: %d for a caller with a wrong token", path, got)
		}
	}
	for _, path := range []string{
		"/", "/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3", "/metrics", "/debug/pprof/", "/logs", "/configz", "/livez/ping",
		"/api/v1/namespaces", "/api/v1/namespaces/default/secrets", "/apis/apps/v1/deployments", "/.well-known/openid-configuration", "/nowhere",
	} {
		if got := status(path, ""); got != http.StatusForbidden && got != http.StatusUnauthorized {
			t.Errorf("%s: %d for an anonymous caller", path, got)
		}
		if got := status(path, "no.such.token"); got != http.StatusUnauthorized {
			t.Errorf("%s: %d for a caller with a wrong token", path, got)
		}
	}
	// Without TLS the API does not answer.
	if response, err := http.Get(strings.Replace(config.Host, "https:", "http:", 1) + "/version"); err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP gets %s", response.Status)
		}
	}
	info, err := os.Stat(s.cluster.kubeconfig())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: mode %v, %v", info.Mode(), err)
	}
}

// TestServiceAccounts: the identity of a service account, its permissions by roles, and the
// validity of a token that is bound to a deleted object.
func TestServiceAccounts(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "serviceaccount", "robot")
	token := strings.TrimSpace(s.kubectl("create", "token", "robot"))
	config := rest.AnonymousClientConfig(s.cluster.config(t))
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// Other services can verify the token: every service account may read the issuer's discovery
	// document.
	s.contains(s.kubectl("get", "--raw", "/.well-known/openid-configuration", "--token="+token), `"issuer":"https://kubernetes.default.svc.cluster.local"`, `/openid/v1/jwks"`)
	s.contains(s.kubectl("get", "--raw", "/openid/v1/jwks"), `"kty":"EC"`, `"alg":"ES256"`)
	robot := "system:serviceaccount:" + s.namespace + ":robot"
	list := func() error {
		_, err := client.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "`+robot+`" cannot list resource "pods"`) {
		t.Errorf("without a role: %v", err)
	}
	s.contains(s.kubectl("auth", "whoami", "--as="+robot), "system:serviceaccounts:"+s.namespace)
	s.kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=pods")
	s.kubectl("create", "rolebinding", "robot-reads", "--role=reader", "--serviceaccount="+s.namespace+":robot")
	s.eventually("the role counts", list)
	s.prints("yes\n", "auth", "can-i", "list", "pods", "--as="+robot)
	s.refused([]string{""}, "auth", "can-i", "delete", "pods", "--as="+robot)
	s.refused([]string{`Error from server (Forbidden): secrets is forbidden: User "` + robot + `" cannot list resource "secrets" in API group "" in the namespace "` + s.namespace + `"`},
		"get", "secrets", "--as="+robot)

	// RBAC's escalation rule: a user may only grant permissions that the user has.
	s.kubectl("create", "clusterrole", s.namespace+"-roles", "--verb=create,update,patch,get", "--resource=roles.rbac.authorization.k8s.io")
	s.kubectl("create", "rolebinding", "robot-roles", "--clusterrole="+s.namespace+"-roles", "--serviceaccount="+s.namespace+":robot")
	s.eventually("the second role counts", func() error {
		if r := s.try("auth", "can-i", "create", "roles.rbac.authorization.k8s.io", "--as="+robot); r.code != 0 {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
	s.refused([]string{"is attempting to grant RBAC permissions not currently held"}, "create", "role", "more", "--verb=*", "--resource=secrets", "--as="+robot)

	// A token is valid no longer than the object that it is bound to.
	s.kubectl("create", "secret", "generic", "anchor")
	config.BearerToken = strings.TrimSpace(s.kubectl("create", "token", "robot", "--bound-object-kind=Secret", "--bound-object-name=anchor"))
	if client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if err := list(); err != nil {
		t.Errorf("with a bound token: %v", err)
	}
	s.kubectl("delete", "secret", "anchor")
	s.eventually("the bound token is refused", func() error {
		if err := list(); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
}

// TestAPIFromAPod: a pod finds the API by its environment, and authenticates with its projected
// token.
func TestAPIFromAPod(t *testing.T) {
	s := withNode(t)
	s.kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
	s.kubectl("create", "rolebinding", "default-reads", "--role=reader", "--serviceaccount="+s.namespace+":default")
	scratch := t.TempDir()
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: caller}
spec:
  volumes: [{name: host, hostPath: {path: /}}]
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"], volumeMounts: [{name: host, mountPath: /host}]}]
`)
	s.ready("caller")
	const mount = "/var/run/secrets/kubernetes.io/serviceaccount"
	in := func(script string) string {
		s.Helper()
		return s.kubectl("exec", "caller", "--", "sh", "-c", script)
	}
	if got := in("cat " + mount + "/namespace"); got != s.namespace {
		t.Errorf("the namespace in the pod is %q", got)
	}
	// The projected CA verifies the address in the environment.
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(in("cat " + mount + "/ca.crt"))) {
		t.Fatal("no certificate in the pod's ca.crt")
	}
	address := strings.TrimSpace(in("echo $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"))
	host, port, _ := strings.Cut(address, " ")
	if net.ParseIP(host) == nil || port == "" {
		t.Fatalf("the pod is told that the API is at %q", address)
	}
	connection, err := tls.Dial("tcp", net.JoinHostPort(host, port), &tls.Config{RootCAs: authorities})
	if err != nil {
		t.Errorf("the API at %s:%s: %v", host, port, err)
	} else {
		connection.Close()
	}
	// This machine's kubectl, run in the pod's network with only the pod's files.
	kubectl := `exec chroot /host ` + binary + ` kubectl --kubeconfig=/dev/null --cache-dir=` + scratch +
		` --server=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT --certificate-authority=` + scratch + `/ca.crt` +
		` --token=$(cat ` + mount + `/token) --namespace=` + s.namespace + ` `
	in("cp " + mount + "/ca.crt /host" + scratch + "/")
	s.prints("pod/caller\n", "exec", "caller", "--", "sh", "-c", kubectl+"get pod caller -o name")
	s.refused([]string{`secrets is forbidden: User "system:serviceaccount:` + s.namespace + `:default" cannot list resource "secrets"`},
		"exec", "caller", "--", "sh", "-c", kubectl+"get secrets")
	// The token is bound to the pod and names it.
	s.contains(in(kubectl+"auth whoami"), "authentication.kubernetes.io/pod-name", "[caller]", "authentication.kubernetes.io/node-name")

	// A pod can disable it.
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: without}
spec:
  automountServiceAccountToken: false
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.ready("without")
	s.refused([]string{"No such file or directory"}, "exec", "without", "--", "ls", mount)
}

// TestOwnersAreGuarded: "to set this field, a user needs delete permission of the owner,
// otherwise 422 (Unprocessable Entity) will be returned" (OwnerReference, API reference).
func TestOwnersAreGuarded(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "serviceaccount", "robot")
	robot := "system:serviceaccount:" + s.namespace + ":robot"
	s.kubectl("create", "role", "writer", "--verb=get,create,update,patch", "--resource=configmaps")
	s.kubectl("create", "rolebinding", "robot-writes", "--role=writer", "--serviceaccount="+s.namespace+":robot")
	s.kubectl("create", "configmap", "owner")
	s.eventually("the role counts", func() error {
		_, err := s.cluster.client(t).CoreV1().ConfigMaps(s.namespace).Get(context.Background(), "owner", metav1.GetOptions{})
		if r := s.try("auth", "can-i", "create", "configmaps", "--as="+robot); r.code != 0 {
			return fmt.Errorf("%s", r.err)
		}
		return err
	})
	s.refusedInput(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: blocker
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: `+s.jsonpath("{.metadata.uid}", "cm", "owner")+`, blockOwnerDeletion: true}]
`, []string{`The ConfigMap "blocker" is invalid: metadata.ownerReferences[0].blockOwnerDeletion`, `user "` + robot + `" cannot delete configmaps "owner"`},
		"create", "-f", "-", "--as="+robot)
}
