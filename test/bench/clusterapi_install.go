// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/kindred-project/kindred/internal/providers"
	"github.com/kindred-project/kindred/test/servers"
)

const (
	loopback = "127.0.0.1"
	// managerLimit is the time that a manager may take to be ready.
	managerLimit = time.Minute
)

// managers are Cluster API's managers as processes of the host, so that they are the same for both sides. Each has the service account and the roles of
// its manifest.
type managers struct {
	*side
	bench *bench
	// dir has their files, and kubeconfig is that of an administrator.
	dir, kubeconfig string
	processes       []*exec.Cmd
}

// startManagers installs Cluster API on a side.
func startManagers(ctx context.Context, b *bench, s *side, programs servers.ClusterAPI) (_ *managers, err error) {
	m := &managers{side: s, bench: b}
	if m.dir, err = os.MkdirTemp(b.scratch, "managers"); err != nil {
		return nil, err
	}
	m.kubeconfig = filepath.Join(m.dir, "admin")
	if err := writeKubeconfig(m.kubeconfig, s.config, clientcmdapi.AuthInfo{ClientCertificateData: s.config.CertData, ClientKeyData: s.config.KeyData}); err != nil {
		return nil, err
	}
	for _, p := range programs.Providers {
		if err := m.start(ctx, p); err != nil {
			m.end()
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return m, nil
}

// end stops the managers.
func (m *managers) end() {
	for _, p := range m.processes {
		_ = p.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range m.processes {
		_ = p.Wait()
	}
}

// writeKubeconfig writes a kubeconfig for a user of a server.
func writeKubeconfig(file string, server *rest.Config, user clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData, InsecureSkipTLSVerify: server.Insecure}
	config.AuthInfos["bench"] = &user
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	return clientcmd.WriteToFile(*config, file)
}

// kubectl runs kubectl as an administrator.
func (m *managers) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return m.bench.kubectl(ctx, m.kubeconfig, input, args...)
}

// kubectl runs kubectl with a kubeconfig, and returns what it prints.
func (b *bench) kubectl(ctx context.Context, kubeconfig, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.binary, append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...)
	var errOut bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &errOut
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errOut.Bytes())
	}
	return string(out), nil
}

// apply applies a manifest.
func (m *managers) apply(ctx context.Context, manifest string) error {
	_, err := m.kubectl(ctx, manifest, "apply", "--server-side", "-f", "-")
	return err
}

// start applies the objects of a provider without its Deployment, and runs the manager of that instead.
func (m *managers) start(ctx context.Context, p servers.Provider) error {
	manifest, err := m.kubectl(ctx, "", "kustomize", p.Config)
	if err != nil {
		return err
	}
	if manifest, err = providers.Substitute(manifest, clusterAPIVariables); err != nil {
		return err
	}
	all, err := providers.Decode(manifest)
	if err != nil {
		return err
	}
	webhooks, err := newWebhookServer(filepath.Join(m.dir, p.Name))
	if err != nil {
		return err
	}
	var args []string
	var applied strings.Builder
	for _, o := range all {
		switch o.GetKind() {
		case "Deployment":
			args = managerArgs(o)
			continue
		case "Service", "Certificate", "Issuer":
			continue
		}
		webhooks.serve(o)
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		fmt.Fprintf(&applied, "---\n%s\n", text)
	}
	if err := m.apply(ctx, applied.String()); err != nil {
		return err
	}
	return m.run(ctx, p, append(args, webhooks.flags()...))
}

func clusterAPIVariables(name string) string {
	if name == "CLUSTER_TOPOLOGY" {
		return "true"
	}
	return ""
}

// managerArgs returns the arguments of the manager of a Deployment.
func managerArgs(deployment *unstructured.Unstructured) (args []string) {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		container := c.(map[string]any)
		if container["name"] == "manager" {
			args, _, _ = unstructured.NestedStringSlice(container, "args")
		}
	}
	return args
}

// run starts a manager under the service account "manager" of its namespace, which all manifests have by their prefix, and waits until it is ready.
func (m *managers) run(ctx context.Context, p servers.Provider, args []string) error {
	namespace := p.Name + "-system"
	day := int64((24 * time.Hour).Seconds())
	token, err := m.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, p.Name+"-manager", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(m.dir, p.Name, "kubeconfig")
	if err := writeKubeconfig(kubeconfig, m.config, clientcmdapi.AuthInfo{Token: token.Status.Token}); err != nil {
		return err
	}
	health, err := servers.FreeAddress()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(m.dir, p.Name, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// The last of two equal flags counts.
	cmd := exec.CommandContext(ctx, p.Program, slices.Concat(args, unlimited, []string{
		"--kubeconfig", kubeconfig, "--leader-elect=false", "--diagnostics-address", loopback + ":0", "--health-addr", health,
	})...)
	cmd.Env = append(os.Environ(), "POD_NAMESPACE="+namespace, "POD_NAME="+p.Name, "POD_UID=00000000-0000-0000-0000-000000000000", "POD_IP="+loopback)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	m.processes = append(m.processes, cmd)
	return awaitHealthy(ctx, "http://"+health+"/readyz", log.Name())
}

// awaitHealthy waits until a manager says that it is ready.
func awaitHealthy(ctx context.Context, url, log string) error {
	ctx, cancel := context.WithTimeout(ctx, managerLimit)
	defer cancel()
	for {
		if answer, err := http.Get(url); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			text, err := os.ReadFile(log)
			return errors.Join(fmt.Errorf("not ready: %w: %s", ctx.Err(), text[max(0, len(text)-2000):]), err)
		}
	}
}

// webhookServer is where a manager serves its webhooks.
type webhookServer struct {
	dir, port string
	// authority is its certificate, as a caBundle.
	authority string
}

// newWebhookServer chooses a port and writes a certificate to a directory.
func newWebhookServer(dir string) (w webhookServer, err error) {
	address, err := servers.FreeAddress()
	if err != nil {
		return w, err
	}
	if _, w.port, err = net.SplitHostPort(address); err != nil {
		return w, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(loopback, nil, nil)
	if err != nil {
		return w, err
	}
	w.dir, w.authority = dir, base64.StdEncoding.EncodeToString(certificate)
	return w, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
}

func (w webhookServer) flags() []string {
	return []string{"--webhook-port", w.port, "--webhook-cert-dir", w.dir}
}

// serve points the webhooks of an object here, instead of to a Service.
func (w webhookServer) serve(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		conversion, found, _ := unstructured.NestedMap(o.Object, "spec", "conversion", "webhook")
		if found {
			w.redirect(conversion)
			_ = unstructured.SetNestedMap(o.Object, conversion, "spec", "conversion", "webhook")
		}
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, hook := range hooks {
			w.redirect(hook.(map[string]any))
		}
		_ = unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
	}
}

func (w webhookServer) redirect(webhook map[string]any) {
	path, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "path")
	webhook["clientConfig"] = map[string]any{"url": "https://" + net.JoinHostPort(loopback, w.port) + path, "caBundle": w.authority}
}
