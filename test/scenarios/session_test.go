// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is the timeout for things that should happen at once. It is long, for busy machines.
const patience = time.Minute

// session is a user at a terminal: a cluster, and a namespace to work in.
type session struct {
	*testing.T
	cluster   *cluster
	namespace string
}

// newSession creates a namespace for one scenario, and deletes it afterwards.
func newSession(t *testing.T, c *cluster) *session {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(t.Name(), "Test")))
	s := &session{t, c, name}
	if r := s.try("create", "namespace", name); r.code != 0 {
		t.Fatalf("create namespace: %s", r.err)
	}
	t.Cleanup(func() {
		if t.Failed() && c.running() {
			s.report()
		}
		s.try("delete", "namespace", name, "--wait=false")
	})
	return s
}

// inNamespace returns a session in an existing namespace, which is not deleted.
func inNamespace(t *testing.T, c *cluster, name string) *session { return &session{t, c, name} }

// report prints the state of the namespace when a scenario fails.
func (s *session) report() {
	s.Log(s.try("get", "all", "-o", "wide").out)
	s.Log(s.try("get", "events", "--sort-by=.lastTimestamp").out)
	s.Log(tail(s.try("get", "pods", "-o", "yaml").out, 12000))
}

// otherKubectl is a program to use instead of "kindred kubectl"; "make clients" sets it to kubectl
// of other versions.
var otherKubectl = os.Getenv("KUBECTL")

func (s *session) command(args ...string) *exec.Cmd {
	args = append([]string{"--namespace", s.namespace}, args...)
	if otherKubectl == "" {
		return s.cluster.command(append([]string{"kubectl", "--data-dir", s.cluster.dir}, args...)...)
	}
	cmd := s.cluster.command()
	cmd.Path, cmd.Args = otherKubectl, append([]string{otherKubectl}, args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+filepath.Join(s.cluster.dir, "kubeconfig"))
	return cmd
}

// try runs a kubectl command.
func (s *session) try(args ...string) result { return runCommand(s.command(args...), "") }

// kubectl runs a command that must succeed, and returns its output.
func (s *session) kubectl(args ...string) string {
	s.Helper()
	return s.input("", args...)
}

// input is kubectl for a command that reads its standard input.
func (s *session) input(stdin string, args ...string) string {
	s.Helper()
	r := runCommand(s.command(args...), stdin)
	if r.code != 0 {
		s.Fatalf("kubectl %s: exit status %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// prints runs a command that must succeed with exactly this output.
func (s *session) prints(want string, args ...string) {
	s.Helper()
	if got := s.kubectl(args...); got != want {
		s.Errorf("kubectl %s\n got %q\nwant %q", strings.Join(args, " "), got, want)
	}
}

// refused runs a command that must fail, and checks that the output contains all parts.
func (s *session) refused(parts []string, args ...string) {
	s.Helper()
	s.checkRefusal(s.try(args...), parts, args)
}

// refusedInput is refused for a command that reads its standard input.
func (s *session) refusedInput(stdin string, parts []string, args ...string) {
	s.Helper()
	s.checkRefusal(runCommand(s.command(args...), stdin), parts, args)
}

func (s *session) checkRefusal(r result, parts, args []string) {
	s.Helper()
	if r.code == 0 {
		s.Errorf("kubectl %s works and should not:\n%s", strings.Join(args, " "), r.out)
		return
	}
	for _, part := range parts {
		if !strings.Contains(r.err, part) {
			s.Errorf("kubectl %s says\n%s\nwithout %q", strings.Join(args, " "), r.err, part)
		}
	}
}

// apply applies a manifest.
func (s *session) apply(manifest string) {
	s.Helper()
	s.input(manifest, "apply", "-f", "-")
}

// background starts a command that runs until the scenario ends.
func (s *session) background(args ...string) *process {
	s.Helper()
	p, err := startProcess(s.command(args...))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.end)
	return p
}

// jsonpath returns fields of one or more objects.
func (s *session) jsonpath(path string, args ...string) string {
	s.Helper()
	return s.kubectl(append(append([]string{"get"}, args...), "-o", "jsonpath="+path)...)
}

func (s *session) uid(object string) string {
	s.Helper()
	return s.jsonpath("{.metadata.uid}", object)
}

// owned applies an object with an owner. In the manifest, OWNERS stands for the reference and UID
// for the owner's UID.
func (s *session) owned(by, manifest string) {
	s.Helper()
	kind, name, _ := strings.Cut(by, "/")
	apiVersion, kind := map[string]string{"stack": "move.example.com/v1", "configmap": "v1"}[kind], map[string]string{"stack": "Stack", "configmap": "ConfigMap"}[kind]
	uid := s.uid(by)
	owners := fmt.Sprintf("[{apiVersion: %s, kind: %s, name: %s, uid: %s, controller: true, blockOwnerDeletion: true}]", apiVersion, kind, name, uid)
	s.apply(strings.NewReplacer("OWNERS", owners, "UID", uid).Replace(manifest))
}

func (s *session) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := s.cluster.client(s.T).CoreV1().Pods(s.namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return pod
}

// pods returns the pods that a selector matches, in no order.
func (s *session) pods(selector string) []corev1.Pod {
	s.Helper()
	list, err := s.cluster.client(s.T).CoreV1().Pods(s.namespace).List(context.Background(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		s.Fatal(err)
	}
	return list.Items
}

// ready waits until a pod is Ready.
func (s *session) ready(pod string) {
	s.Helper()
	s.kubectl("wait", "--for=condition=Ready", "pod/"+pod, "--timeout", patience.String())
}

// eventually waits until check returns no error.
func (s *session) eventually(what string, check func() error) {
	s.Helper()
	s.within(patience, what, check)
}

func (s *session) within(limit time.Duration, what string, check func() error) {
	s.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s: after %v: %v", what, limit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// gone waits until kubectl no longer finds an object.
func (s *session) gone(kind, name string) {
	s.Helper()
	s.eventually(kind+" "+name+" goes", func() error {
		r := s.try("get", kind, name)
		if r.code != 0 && strings.Contains(r.err, "(NotFound)") {
			return nil
		}
		return fmt.Errorf("%s%s", r.out, r.err)
	})
}

// contains fails unless a text has all parts.
func (s *session) contains(text string, parts ...string) {
	s.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			s.Errorf("no %q in\n%s", part, text)
		}
	}
}

// may waits until a user is allowed something: a server learns of roles and bindings a moment after they were written.
func (s *session) may(args ...string) {
	s.Helper()
	s.eventually("the role counts", func() error {
		if r := s.try(append([]string{"auth", "can-i"}, args...)...); r.code != 0 {
			return fmt.Errorf("can-i %s: %s%s", strings.Join(args, " "), r.out, r.err)
		}
		return nil
	})
}

// describes waits until kubectl describe prints texts about an object. Events are recorded later than the
// change that they tell of.
func (s *session) describes(resource, name string, texts ...string) {
	s.Helper()
	s.eventually("the description of "+name, func() error {
		described := s.kubectl("describe", resource, name)
		for _, text := range texts {
			if !strings.Contains(described, text) {
				return fmt.Errorf("no %q in\n%s", text, described)
			}
		}
		return nil
	})
}

// awaitOutput waits until a background command has printed a text.
func (s *session) awaitOutput(p *process, part string) {
	s.Helper()
	s.eventually("output", func() error {
		if out := p.out.String(); !strings.Contains(out, part) {
			return fmt.Errorf("no %q in %q", part, out)
		}
		return nil
	})
}

// table runs a command that must succeed, and checks the table that it prints. Columns are
// separated by spaces; * matches any value.
func (s *session) table(want string, args ...string) {
	s.Helper()
	got := s.kubectl(args...)
	lines, wanted := strings.Split(strings.TrimSpace(got), "\n"), strings.Split(want, "\n")
	same := len(lines) == len(wanted)
	for i := 0; same && i < len(lines); i++ {
		same = slices.EqualFunc(strings.Fields(lines[i]), strings.Fields(wanted[i]), func(value, pattern string) bool {
			return pattern == "*" || value == pattern
		})
	}
	if !same {
		s.Errorf("kubectl %s prints\n%swant\n%s", strings.Join(args, " "), got, want)
	}
}
