// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/test/servers"
)

// server is a Kindred that can be killed and started again.
type server struct {
	kindred servers.Kindred
	dir     string
	running *servers.Server
	client  dynamic.Interface
}

func startServer(ctx context.Context, binary, dir string) (*server, error) {
	s := &server{dir: dir, kindred: servers.Kindred{Binary: binary, Args: []string{"--no-node"}}}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, s.define(ctx)
}

func (s *server) start(ctx context.Context) error {
	running, err := s.kindred.Start(ctx, s.dir)
	if err != nil {
		return err
	}
	s.running = running
	config := rest.CopyConfig(running.Config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	return s.writeEve()
}

// crash kills the server and starts it again.
func (s *server) crash(ctx context.Context) error {
	s.running.Kill()
	return s.start(ctx)
}

// define installs the kinds of the graphs.
func (s *server) define(ctx context.Context) error {
	definitions := s.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, k := range []kind{tools, racks} {
		scope := "Cluster"
		if k.namespaced {
			scope = "Namespaced"
		}
		text := fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  scope: %[4]s
  names: {plural: %[1]s, kind: %[3]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, k.Resource, k.Group, k.name, scope)
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			return err
		}
		if _, err := definitions.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := s.awaitServed(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) awaitServed(ctx context.Context, k kind) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, last = s.client.Resource(k.GroupVersionResource).List(ctx, metav1.ListOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s are not served: %w", k.Resource, errors.Join(err, last))
	}
	return nil
}

// eve is a user with rights in one namespace only.
const eve = "eve"

func (s *server) adminConfig() string { return s.running.Kubeconfig }
func (s *server) eveConfig() string   { return filepath.Join(s.dir, eve+".kubeconfig") }

// writeEve writes a kubeconfig whose requests are made as eve.
func (s *server) writeEve() error {
	config, err := clientcmd.LoadFromFile(s.adminConfig())
	if err != nil {
		return err
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = eve
	}
	return clientcmd.WriteToFile(*config, s.eveConfig())
}

// verb is a command line of kindred.
type verb struct {
	config string
	args   []string
	// killed is the delay before the client is killed; 0 for never.
	killed time.Duration
}

func (v verb) String() string { return "kindred " + fmt.Sprint(v.args) }

// result is the output and the exit status of a verb; -1 if it was killed.
type result struct {
	out, err string
	code     int
}

func (r result) String() string {
	return fmt.Sprintf("exit status %d\n%s%s", r.code, r.out, r.err)
}

const (
	// patience is the timeout of every wait, long enough for a busy machine.
	patience = time.Minute
	// most is the limit of a verb's output in bytes: the graphs are small.
	most = 1 << 20
)

// limited is a buffer with a maximum size.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > most {
		return 0, fmt.Errorf("more than %d bytes were printed", most)
	}
	return l.Buffer.Write(p)
}

// run runs a verb. It fails if the verb exceeds patience or its output exceeds most.
func (s *server) run(ctx context.Context, v verb) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, stderr limited
	cmd := exec.CommandContext(ctx, s.kindred.Binary, append(v.args, "--kubeconfig", v.config)...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	if v.killed > 0 {
		timer := time.AfterFunc(v.killed, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err := cmd.Wait()
	r := result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("%s did not end within %s; it printed:\n%s", v, patience, head(r.out+r.err))
	case err != nil && !errors.As(err, &exit):
		return r, fmt.Errorf("%s: %w; it printed:\n%s", v, err, head(r.out+r.err))
	}
	return r, nil
}

// head truncates a text to what a person reads.
func head(text string) string {
	if len(text) > 2000 {
		return text[:2000] + "..."
	}
	return text
}

func patch(ctx context.Context, objects dynamic.ResourceInterface, name, text string) error {
	_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
	return err
}
