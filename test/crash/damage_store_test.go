// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// endLimit is the timeout for refusing a damaged store and for stopping on SIGTERM.
	endLimit = 10 * time.Second
	// readyLimit is the timeout of a start on a busy machine.
	readyLimit = 90 * time.Second
)

// damageBinary is the program under test.
func damageBinary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("KINDRED_BIN")
	if path == "" {
		t.Skip("KINDRED_BIN does not name a kindred to test")
	}
	return path
}

// start is a process of "kindred up".
type start struct {
	cmd    *exec.Cmd
	dir    string
	stderr bytes.Buffer
	ready  chan struct{}
	ended  chan struct{}
}

// up starts a cluster without nodes in dir.
func up(t *testing.T, dir string, args ...string) *start {
	t.Helper()
	s := &start{dir: dir, ready: make(chan struct{}), ended: make(chan struct{})}
	s.cmd = exec.Command(damageBinary(t), append([]string{"up", "--data-dir", dir, "--secure-port", "0", "--no-node"}, args...)...)
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready in ") {
				close(s.ready)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(s.kill)
	return s
}

func (s *start) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// terminate sends SIGTERM and reports whether the process ended in time.
func (s *start) terminate() bool {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		return true
	case <-time.After(endLimit):
		return false
	}
}

func (s *start) awaitReady(t *testing.T) {
	t.Helper()
	select {
	case <-s.ready:
	case <-s.ended:
		t.Fatalf("the cluster did not start: %s", s.stderr.String())
	case <-time.After(readyLimit):
		t.Fatal("the cluster did not get ready")
	}
}

func (s *start) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// contents has the acknowledged state of each object by its name.
type contents map[string]string

func stateOf(c *corev1.ConfigMap) string {
	return fmt.Sprintf("%s %s %v", c.UID, c.ResourceVersion, c.Data)
}

// write creates, updates and deletes objects, and records acknowledged writes.
func (c contents) write(ctx context.Context, client kubernetes.Interface, random *rand.Rand, prefix string, objects int) error {
	configMaps := client.CoreV1().ConfigMaps("default")
	for i := range objects {
		name := fmt.Sprintf("%s-%03d", prefix, i)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": text(random)}}
		stored, err := configMaps.Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if i%3 == 0 {
			stored.Data["text"] = text(random)
			if stored, err = configMaps.Update(ctx, stored, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		c[name] = stateOf(stored)
		if i%10 == 9 {
			if err := configMaps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			delete(c, name)
		}
	}
	return nil
}

// text returns a few hundred letters.
func text(random *rand.Rand) string {
	letters := make([]byte, 200+random.IntN(400))
	for i := range letters {
		letters[i] = byte('a' + random.IntN(26))
	}
	return string(letters)
}

// compare returns the differences between the served and the acknowledged objects.
func (c contents) compare(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var wrong []error
	served := contents{}
	for i := range list.Items {
		if list.Items[i].Name != "kube-root-ca.crt" {
			served[list.Items[i].Name] = stateOf(&list.Items[i])
		}
	}
	for name, state := range c {
		switch served[name] {
		case state:
		case "":
			wrong = append(wrong, fmt.Errorf("%s is lost", name))
		default:
			wrong = append(wrong, fmt.Errorf("%s was %.80q and is %.80q", name, state, served[name]))
		}
	}
	for name := range served {
		if c[name] == "" {
			wrong = append(wrong, fmt.Errorf("%s exists, but was deleted or never created", name))
		}
	}
	return errors.Join(wrong...)
}

// stores has copies of a store at three moments, which the tests damage.
type stores struct {
	// older is the store at its first stop.
	older string
	// stopped was stopped cleanly, killed by SIGKILL.
	stopped, killed             string
	stoppedContent, killedWrite contents
}

// makeStores runs a cluster three times.
func makeStores(t *testing.T, random *rand.Rand) *stores {
	t.Helper()
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "cluster")
	s := &stores{older: filepath.Join(t.TempDir(), "older"), stopped: filepath.Join(t.TempDir(), "stopped"), killed: filepath.Join(t.TempDir(), "killed")}
	acknowledged := contents{}
	run := func(prefix string, objects int, end func(*start), copyTo string) contents {
		t.Helper()
		running := up(t, dir)
		running.awaitReady(t)
		if err := acknowledged.write(ctx, running.client(t), random, prefix, objects); err != nil {
			t.Fatal(err)
		}
		end(running)
		copyStore(t, dir, copyTo)
		return maps.Clone(acknowledged)
	}
	stop := func(s *start) {
		if !s.terminate() {
			t.Fatal("the cluster did not stop")
		}
	}
	run("first", 150, stop, s.older)
	s.stoppedContent = run("second", 150, stop, s.stopped)
	s.killedWrite = run("third", 60, (*start).kill, s.killed)
	return s
}

// copyStore copies a data directory. Files of zeros stay sparse: a segment of the log is 64 MB.
func copyStore(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case entry.Name() == "kindred.lock" || strings.HasSuffix(path, ".log") || strings.Contains(path, "/audit"):
			return nil
		}
		return copySparse(path, target)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	zeros, block := make([]byte, 1<<18), make([]byte, 1<<18)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, block)
		if !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}
