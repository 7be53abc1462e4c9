// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/datadir"
)

// TestMain lets the test binary act as kindred, because kubectl exits its process.
func TestMain(m *testing.M) {
	if os.Getenv("CLI_TEST_MAIN") != "" {
		os.Exit(Execute(New("v1.2.3")))
	}
	os.Exit(m.Run())
}

// run runs a command line in this process.
func run(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := New("v1.2.3")
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = Execute(root)
	return stdout.String(), stderr.String(), code
}

// process runs a command line in a new process.
func process(t *testing.T, env []string, args ...string) (out, errOut string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), append([]string{"CLI_TEST_MAIN=1", "KUBECONFIG=", "HOME=" + t.TempDir()}, env...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func TestErrorsAreOneLine(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "diary"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status", "--bogus"}, 2, `error: unknown flag: --bogus; see "kindred status --help"`},
		{[]string{"stauts"}, 2, `error: unknown command "stauts" for "kindred"; Did you mean this? status; see "kindred --help"`},
		{[]string{"image", "bogus"}, 2, `error: unknown command "bogus" for "kindred image"; see "kindred image --help"`},
		{[]string{"image", "load"}, 2, `error: requires at least 1 arg(s), only received 0; see "kindred image load --help"`},
		{[]string{"version", "-o", "yaml"}, 2, `error: --output is "yaml", it must be json; see "kindred version --help"`},
		{[]string{"kubectl", "--data-dir"}, 2, `error: flag needs an argument: --data-dir; see "kindred help kubectl"`},
		{[]string{"status", "--data-dir", ""}, 2, `error: no data directory given: use --data-dir; see "kindred status --help"`},
		{[]string{"status", "--data-dir", absent}, 1, `error: no cluster runs in ` + absent + `; start it with "kindred up" or name another with --data-dir`},
		{[]string{"image", "load", "x.tar", "--data-dir", absent}, 1, `error: no cluster runs in ` + absent + `; start it with "kindred up" or name another with --data-dir`},
		{[]string{"reset", "--data-dir", foreign}, 1, `error: data directory ` + foreign + `: not empty and not Kindred's (it has "diary" and no kindred.version); nothing was touched, use another --data-dir`},
	} {
		t.Run(strings.Join(tt.args[:min(2, len(tt.args))], " "), func(t *testing.T) {
			out, errOut, code := run(t, tt.args...)
			if code != tt.code || errOut != tt.want+"\n" || out != "" {
				t.Errorf("exit status %d, want %d\n%s%swant %s", code, tt.code, out, errOut, tt.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	err := errors.Join(errors.New("a\n\n"), errors.New("  b"))
	if got := oneLine(err); got != "a; b" {
		t.Errorf("oneLine() = %q", got)
	}
	there := apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web", errors.New("it is there"))
	if got := oneLine(fmt.Errorf("undelete: %w", there)); got != `undelete: deployments.apps "web": it is there` {
		t.Errorf("a conflict: oneLine() = %q", got)
	}
}

func TestVersion(t *testing.T) {
	out, _, code := run(t, "version")
	if code != 0 || !strings.HasPrefix(out, "kindred v1.2.3 (Kubernetes v") || strings.Count(out, "\n") != 1 {
		t.Errorf("exit status %d: %q", code, out)
	}
	out, _, _ = run(t, "version", "-o", "json")
	var v versions
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Kindred != "v1.2.3" {
		t.Errorf("%q: %v", out, err)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _, code := run(t, "completion", shell); code != 0 || !strings.Contains(out, "kindred") {
			t.Errorf("%s: exit status %d", shell, code)
		}
	}
}

func TestParseCompletions(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
		how  cobra.ShellCompDirective
	}{
		{"get\tone\ngrant\n:4\n", []string{"get\tone", "grant"}, cobra.ShellCompDirectiveNoFileComp},
		{":0\n", []string{}, cobra.ShellCompDirectiveDefault},
		{"nonsense", nil, cobra.ShellCompDirectiveError},
		{"", nil, cobra.ShellCompDirectiveError},
	} {
		got, how := parseCompletions(tt.text)
		if diff := cmp.Diff(tt.want, got); diff != "" || how != tt.how {
			t.Errorf("%q: %v, %v", tt.text, got, how)
		}
	}
}

func TestTakeDataDir(t *testing.T) {
	for _, tt := range []struct {
		args, rest []string
		path       string
	}{
		{[]string{"get", "pods"}, []string{"get", "pods"}, ""},
		{[]string{"--data-dir", "/d", "get"}, []string{"get"}, "/d"},
		{[]string{"--data-dir=/d", "get"}, []string{"get"}, "/d"},
		{[]string{"exec", "p", "--", "x", "--data-dir", "/d"}, []string{"exec", "p", "--", "x", "--data-dir", "/d"}, ""},
		{nil, nil, ""},
	} {
		path, rest, err := takeDataDir(tt.args)
		if err != nil || path != tt.path || cmp.Diff(tt.rest, rest) != "" {
			t.Errorf("%v: %q, %v, %v", tt.args, path, rest, err)
		}
	}
}

func TestKubectl(t *testing.T) {
	layout, err := datadir.New(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	plugins := t.TempDir()
	script := "#!/bin/sh\necho \"$KUBECONFIG $*\"\nexit 7\n"
	if err := os.WriteFile(filepath.Join(plugins, "kubectl-hello"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	withPlugins := "PATH=" + plugins + ":" + os.Getenv("PATH")
	dir := "--data-dir=" + layout.Root
	const hint = "error: no cluster has run in"

	for _, tt := range []struct {
		name        string
		env, args   []string
		code        int
		out, errOut string // parts
		hint        bool
	}{
		{"no cluster needed", nil, []string{"kubectl", dir, "version", "--client"}, 0, "Client Version:", "", false},
		{"no cluster", nil, []string{"kubectl", dir, "get", "pods"}, 1, "", layout.Root, true},
		{"flag before the verb", nil, []string{dir, "kubectl", "get", "pods"}, 1, "", layout.Root, true},
		{"usage errors are kubectl's", nil, []string{"kubectl", dir, "get", "--bogus"}, 1, "", "See 'kubectl get --help' for usage.", false},
		{"unknown command", nil, []string{"kubectl", dir, "bogus"}, 1, "", `unknown command "bogus" for "kubectl"`, false},
		{"help", nil, []string{"kubectl", dir, "--help"}, 0, "kubectl controls the Kubernetes cluster manager", "", false},
		{"plugin", []string{withPlugins}, []string{"kubectl", dir, "hello", "--data-dir", "x"}, 7, layout.Kubeconfig() + " --data-dir x\n", "", false},
		{"plugin, other cluster", []string{withPlugins, "KUBECONFIG=/other"}, []string{"kubectl", "hello"}, 7, "/other \n", "", false},
		{"plugin, data directory overrides KUBECONFIG", []string{withPlugins, "KUBECONFIG=/other"}, []string{"kubectl", dir, "hello"}, 7, layout.Kubeconfig() + " \n", "", false},
		{"other cluster", nil, []string{"kubectl", dir, "--kubeconfig=/nowhere", "get", "pods"}, 1, "", "/nowhere", false},
		{"completion", nil, []string{"__complete", "kubectl", dir, "rollo"}, 0, "rollout\tManage the rollout of a resource\n:4\n", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errOut, code := process(t, tt.env, tt.args...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errOut, tt.errOut) {
				t.Errorf("exit status %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, out, errOut)
			}
			if strings.HasPrefix(errOut, hint) != tt.hint || tt.hint && strings.Count(errOut, "\n") != 1 {
				t.Errorf("hint %v, want %v\n%s", !tt.hint, tt.hint, errOut)
			}
		})
	}
}

// fakeCluster returns a data directory whose cluster this process claims to be, with an API that
// answers for it.
func fakeCluster(t *testing.T, readyz func(http.ResponseWriter)) datadir.Layout {
	t.Helper()
	layout, err := datadir.New(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := layout.Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Release() })

	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { readyz(w) })
	answer := func(path string, object runtime.Object) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(object); err != nil {
				t.Error(err)
			}
		})
	}
	node := func(name string, ready corev1.ConditionStatus) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	pod := func(phase corev1.PodPhase) corev1.Pod { return corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	answer("/api/v1/nodes", &corev1.NodeList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
		Items:    []corev1.Node{node("a", corev1.ConditionTrue), node("b", corev1.ConditionUnknown)},
	})
	answer("/api/v1/pods", &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Items:    []corev1.Pod{pod(corev1.PodRunning), pod(corev1.PodPending), pod(corev1.PodRunning)},
	})
	answer("/apis/ownership.kindred.dev/v1alpha1/ownershiplints", &ownership.OwnershipLint{
		TypeMeta: metav1.TypeMeta{APIVersion: ownership.SchemeGroupVersion.String(), Kind: "OwnershipLint"},
		Status:   ownership.OwnershipLintStatus{Findings: make([]ownership.LintFinding, 2)},
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, layout.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	err = layout.WriteInstance(datadir.Instance{
		PID: os.Getpid(), Version: "v9", StartedAt: time.Now().Add(-90 * time.Minute), Server: server.URL,
		ContainerRuntime: "unix:///run/x.sock", NodeName: "n",
	})
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

func TestStatus(t *testing.T) {
	layout := fakeCluster(t, func(w http.ResponseWriter) { w.Write([]byte("[+]ping ok\nreadyz check passed\n")) })
	out, errOut, code := run(t, "status", "--data-dir", layout.Root)
	if code != 1 || !strings.Contains(errOut, "the cluster works, but node b is not ready") {
		t.Errorf("exit status %d: %s", code, errOut)
	}
	for _, want := range []string{"kindred v9, up 90m\n", "embedded etcd\n", "unix:///run/x.sock\n", "ok\n", "1 of 2 ready; \"kubectl describe node b\" says what is wrong\n", "3 (1 Pending, 2 Running)\n",
		"On hold  2 objects; \"kindred lint -A --rule on-hold\" explains why and how to continue\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, _, _ = run(t, "status", "--data-dir", layout.Root, "-o", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got["ready"] != true || got["dataDir"] != layout.Root || got["nodeName"] != "n" || got["held"] != 2.0 {
		t.Errorf("json: %s", out)
	}
}

func TestStatusOfAnUnreadyCluster(t *testing.T) {
	layout := fakeCluster(t, func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusInternalServerError)
		w.Write([]byte("[+]ping ok\n[-]etcd failed: reason withheld\n[-]node failed: none is ready\nreadyz check failed\n"))
	})
	out, errOut, code := run(t, "status", "--data-dir", layout.Root)
	if code != 1 || errOut != "error: the cluster is not ready: etcd, node\n" || !strings.Contains(out, "1 of 2 ready") {
		t.Errorf("exit status %d: %s%s", code, errOut, out)
	}
}

func TestStatusOfAClusterThatDoesNotAnswer(t *testing.T) {
	layout := fakeCluster(t, func(http.ResponseWriter) {})
	config, err := clientcmd.LoadFromFile(layout.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["c"].Server = "http://127.0.0.1:1"
	if err := clientcmd.WriteToFile(*config, layout.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	_, errOut, code := run(t, "status", "--data-dir", layout.Root)
	if code != 1 || !strings.HasPrefix(errOut, "error: the cluster does not respond: ") {
		t.Errorf("exit status %d: %s", code, errOut)
	}
}

func TestStatusWhileStarting(t *testing.T) {
	layout := fakeCluster(t, func(http.ResponseWriter) {})
	if err := layout.WriteInstance(datadir.Instance{PID: 1}); err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := run(t, "status", "--data-dir", layout.Root); code != 1 || !strings.Contains(errOut, "is still starting") {
		t.Errorf("exit status %d: %s", code, errOut)
	}
}

func TestReset(t *testing.T) {
	layout, err := datadir.New(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := run(t, "reset", "--data-dir", layout.Root); code != 0 || !strings.HasPrefix(out, "nothing to remove") {
		t.Errorf("before the first start: exit status %d: %s%s", code, out, errOut)
	}
	lock, err := layout.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(layout.Etcd(), "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := run(t, "reset", "--data-dir", layout.Root); code != 1 || !strings.Contains(errOut, "in use by process") {
		t.Errorf("while it runs: exit status %d: %s", code, errOut)
	}
	if _, err := os.Stat(layout.Etcd()); err != nil {
		t.Error("a running cluster lost its data")
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := run(t, "reset", "--data-dir", layout.Root); code != 0 || out != "removed the cluster in "+layout.Root+"\n" {
		t.Errorf("afterwards: exit status %d: %s%s", code, out, errOut)
	}
	if _, err := os.Stat(layout.Root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory still exists: %v", err)
	}
}

func TestResetKeepsDataIfContainersCannotBeStopped(t *testing.T) {
	layout, err := datadir.New(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := layout.Lock()
	if err != nil {
		t.Fatal(err)
	}
	missing := "unix://" + filepath.Join(t.TempDir(), "missing.sock")
	if err := layout.WriteInstance(datadir.Instance{PID: os.Getpid(), ContainerRuntime: missing}); err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, errOut, code := run(t, "reset", "--data-dir", layout.Root)
		if code != 1 || !strings.HasPrefix(errOut, "error: nothing was removed, because not all containers could be stopped: ") {
			t.Errorf("exit status %d: %s", code, errOut)
		}
		if _, found, err := layout.ReadInstance(); !found || err != nil {
			t.Fatalf("data was removed: %v", err)
		}
	}
}
