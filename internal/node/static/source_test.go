// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// decode decodes the test's manifests: names, separated by spaces.
func decode(text []byte, complete func(*v1.Pod) error) ([]*v1.Pod, error) {
	var pods []*v1.Pod
	for _, name := range strings.Fields(string(text)) {
		if name == "bad" {
			return nil, errors.New("bad manifest")
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := complete(p); err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	return pods, nil
}

func names(pods []*v1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func TestComplete(t *testing.T) {
	file := origin{node: "Node-1", from: "file", at: "/etc/a.yaml"}
	complete := func(o origin, p *v1.Pod) *v1.Pod {
		if err := o.complete(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	pod := func() *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{v1.MirrorPodAnnotationKey: "x"}}}
	}
	p := complete(file, pod())
	if p.Name != "web-node-1" || p.Namespace != "default" || p.Spec.NodeName != "Node-1" || len(p.UID) != 32 {
		t.Errorf("got %+v", p.ObjectMeta)
	}
	if a := p.Annotations; len(a) != 2 || a["kubernetes.io/config.hash"] != string(p.UID) || a["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations %v", a)
	}
	if len(p.Spec.Tolerations) != 1 || p.Spec.Tolerations[0].Effect != v1.TaintEffectNoExecute {
		t.Errorf("tolerations %v", p.Spec.Tolerations)
	}
	if again := complete(file, pod()); again.UID != p.UID {
		t.Error("the UID of the same manifest is another one")
	}
	labeled := pod()
	labeled.Labels = map[string]string{"a": "b"}
	for what, other := range map[string]*v1.Pod{
		"manifest": complete(file, labeled),
		"file":     complete(origin{node: "Node-1", from: "file", at: "/etc/b.yaml"}, pod()),
		"node":     complete(origin{node: "Node-2", from: "file", at: "/etc/a.yaml"}, pod()),
		"source":   complete(origin{node: "Node-1", from: "http", at: "/etc/a.yaml"}, pod()),
	} {
		if other.UID == p.UID {
			t.Errorf("another %s has the same UID", what)
		}
	}
	if p := complete(origin{node: "n", from: "http", at: "http://a"}, pod()); len(p.Spec.Tolerations) != 0 {
		t.Errorf("a pod of a URL tolerates %v", p.Spec.Tolerations)
	}
	own := pod()
	own.UID = "own"
	if p := complete(file, own); p.UID != "own" || p.Annotations["kubernetes.io/config.hash"] != "own" {
		t.Errorf("the UID of the manifest is lost: %+v", p.ObjectMeta)
	}
	own = pod()
	own.UID = "../own"
	if err := file.complete(own); err == nil {
		t.Error("a UID with a slash is accepted")
	}
}

// fileSource is a File whose reads the test makes.
func fileSource(path string) (f *File, pods *string, failures *[]string) {
	pods, failures = new(string), new([]string)
	return &File{
		Path: path, Node: "n", Decode: decode, Period: time.Hour, Clock: clock.RealClock{},
		Found:  func(found []*v1.Pod) { *pods = names(found) },
		Failed: func(file string, _ error) { *failures = append(*failures, filepath.Base(file)) },
	}, pods, failures
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	f, pods, failures := fileSource(dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("b.yaml"), "b")
	write(t, in("a.json"), "a")
	write(t, in(".hidden"), "hidden")
	write(t, in("list"), "c d")
	if err := os.Mkdir(in("dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f.read(false)
	}
	if *pods != "a-n b-n" || !slices.Equal(*failures, []string{"dir", "list"}) {
		t.Errorf("pods %q, failures %q", *pods, *failures)
	}

	// A file that is being written keeps its pod until the next period. Its error is reported once.
	*failures = nil
	write(t, in("b.yaml"), "bad")
	f.read(true)
	if *pods != "a-n b-n" {
		t.Errorf("while b is written: %q", *pods)
	}
	f.read(false)
	if *pods != "a-n" || !slices.Equal(*failures, []string{"b.yaml"}) {
		t.Errorf("pods %q, failures %q", *pods, *failures)
	}
	write(t, in("b.yaml"), "b2")
	f.read(true)
	write(t, in("b.yaml"), "bad")
	f.read(true)
	if *pods != "a-n b2-n" || !slices.Equal(*failures, []string{"b.yaml", "b.yaml"}) {
		t.Errorf("pods %q, failures %q", *pods, *failures)
	}
}

func TestOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pod.yaml")
	f, pods, failures := fileSource(path)
	*pods = "unread"
	f.read(false)
	if *pods != "" || len(*failures) != 0 {
		t.Errorf("a missing file: pods %q, failures %q", *pods, *failures)
	}
	write(t, path, "a")
	f.read(false)
	if *pods != "a-n" {
		t.Errorf("pods %q", *pods)
	}
}

// Changes are seen by the kernel's notifications, long before the next period.
func TestNotified(t *testing.T) {
	for name, path := range map[string]string{"directory": "", "file": "a"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a"), "first")
		f, _, _ := fileSource(filepath.Join(dir, path))
		found := make(chan string, 10)
		f.Found = func(pods []*v1.Pod) { found <- names(pods) }
		go f.Run(t.Context())
		for _, version := range []string{"first", "second"} {
			for got := ""; got != version+"-n"; {
				select {
				case got = <-found:
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: the %s version is not seen", name, version)
				}
			}
			write(t, filepath.Join(dir, "a"), "second")
		}
	}
}

// A file that is removed and written again at once was removed for a moment.
func TestRemovedForAMoment(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "a")
	write(t, filepath.Join(dir, "b"), "b")
	f, _, _ := fileSource(dir)
	found := make(chan string, 10)
	f.Found = func(pods []*v1.Pod) { found <- names(pods) }
	go f.Run(t.Context())
	for step, want := range []string{"a-n b-n", "b-n", "a-n b-n"} {
		for got := ""; got != want; {
			select {
			case got = <-found:
			case <-time.After(10 * time.Second):
				t.Fatalf("pods %q are not seen", want)
			}
		}
		if step == 0 {
			if err := os.Remove(filepath.Join(dir, "a")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "a"), "a")
		}
	}
}

func TestURL(t *testing.T) {
	status, body, header := http.StatusOK, "a b", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Get("X-Key")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	pods, calls, failures := "unread", 0, 0
	u := &URL{
		URL: server.URL, Header: http.Header{"X-Key": {"v"}}, Node: "n", Decode: decode,
		Found:  func(found []*v1.Pod) { pods = names(found); calls++ },
		Failed: func(string, error) { failures++ },
	}
	for i, test := range []struct {
		status          int
		body            string
		pods            string
		calls, failures int
	}{
		{http.StatusInternalServerError, "", "unread", 0, 1},
		{http.StatusOK, "a b", "a-n b-n", 1, 1},
		{http.StatusOK, "a b", "a-n b-n", 1, 1},               // nothing new
		{http.StatusInternalServerError, "", "a-n b-n", 1, 2}, // the pods stay
		{http.StatusInternalServerError, "", "a-n b-n", 1, 2}, // reported once
		{http.StatusOK, "bad", "a-n b-n", 1, 3},               // the pods stay
		{http.StatusOK, "b", "b-n", 2, 3},
		{http.StatusOK, "", "", 3, 4}, // no pods
		{http.StatusOK, "b", "b-n", 4, 4},
	} {
		status, body = test.status, test.body
		u.read(t.Context())
		if pods != test.pods || calls != test.calls || failures != test.failures {
			t.Errorf("request %d: pods %q, %d calls, %d failures, want %+v", i, pods, calls, failures, test)
		}
	}
	if header != "v" {
		t.Errorf("the header is %q", header)
	}
}
