// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func decode[T any](t *testing.T, query string) (T, error) {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	var out T
	return out, decodeQuery(values, reflect.ValueOf(&out).Elem())
}

func TestQueryOptions(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := QueryOptions[corev1.PodExecOptions]()(scheme); err != nil {
		t.Fatal(err)
	}
	var options corev1.PodExecOptions
	query := url.Values{"command": {"sh", "-c", "echo a b"}, "stdin": {"true"}, "stdout": {""}, "stderr": {"0"}, "tty": {"False"}, "container": {"c"}, "unknown": {"x"}}
	if err := scheme.Convert(&query, &options, nil); err != nil {
		t.Fatal(err)
	}
	want := corev1.PodExecOptions{Command: []string{"sh", "-c", "echo a b"}, Stdin: true, Stdout: true, Container: "c"}
	if diff := cmp.Diff(want, options); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeQuery(t *testing.T) {
	got, err := decode[corev1.PodLogOptions](t, "follow=1&tailLines=10&sinceTime=2026-01-02T03:04:05Z&limitBytes=5&container=c&stream=Stdout&container=second")
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	lines, bytes, stream := int64(10), int64(5), "Stdout"
	want := corev1.PodLogOptions{Follow: true, TailLines: &lines, SinceTime: &since, LimitBytes: &bytes, Container: "c", Stream: &stream}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	ports, err := decode[corev1.PodPortForwardOptions](t, "ports=80&ports=443")
	if err != nil || len(ports.Ports) != 2 || ports.Ports[1] != 443 {
		t.Errorf("%v, %v", ports, err)
	}
	for _, query := range []string{"tailLines=x", "tailLines=", "tailLines=99999999999999999999", "sinceTime=yesterday"} {
		if got, err := decode[corev1.PodLogOptions](t, query); err == nil {
			t.Errorf("%s: %+v, want an error", query, got)
		}
	}
	if got, err := decode[corev1.PodPortForwardOptions](t, "ports=3000000000"); err == nil {
		t.Errorf("a port beyond 32 bits: %+v", got)
	}
}

// FuzzDecodeQuery checks that each query decodes to options or an error, and that named parameters
// are kept.
func FuzzDecodeQuery(f *testing.F) {
	for _, seed := range []string{"", "follow", "follow=false&tailLines=-1", "sinceTime=", "container=%00", "stream=x&stream=y", "sinceSeconds=1e9", "apiVersion=v1&kind=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		var logs corev1.PodLogOptions
		if err := decodeQuery(values, reflect.ValueOf(&logs).Elem()); err == nil {
			if logs.Container != values.Get("container") {
				t.Errorf("container %q of %q", logs.Container, query)
			}
			if (logs.TailLines == nil) != (len(values["tailLines"]) == 0) {
				t.Errorf("tailLines %v of %q", logs.TailLines, query)
			}
		}
		var exec corev1.PodExecOptions
		if err := decodeQuery(values, reflect.ValueOf(&exec).Elem()); err != nil || len(exec.Command) != len(values["command"]) {
			t.Errorf("command %q of %q: %v", exec.Command, query, err)
		}
	})
}
