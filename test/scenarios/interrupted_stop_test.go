// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stubborn returns a pod that notes in a file of a directory when it last ran, and ends only by SIGKILL.
func stubborn(name, dir, lifecycle string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 8
  containers:
  - name: c
    image: "%[2]s"
    command: [sh, -c, "trap : TERM; while :; do date +%%s > /notes/%[1]s.new; mv /notes/%[1]s.new /notes/%[1]s.alive; sleep 0.1; done"]
    volumeMounts: [{name: notes, mountPath: /notes}]
    %[4]s
  volumes: [{name: notes, hostPath: {path: "%[3]s"}}]
`, name, image, dir, lifecycle)
}

// TestInterruptedStop: the container runtime, and then Kindred, is killed while pods are stopped. In both cases the stop
// begins again: the preStop hook runs once more, and the container gets its whole grace period.
func TestInterruptedStop(t *testing.T) {
	if strings.Contains(userRuntime, "crio") {
		t.Skip("CRI-O goes on with a stop whose caller is gone, and runs no hook meanwhile")
	}
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	dir := t.TempDir()
	hook := func(name string) string {
		return `lifecycle: {preStop: {exec: {command: [sh, -c, "date +%s >> /notes/` + name + `.hook; sleep 2"]}}}`
	}
	interruptions := map[string]func(){
		"agent": func() {
			c.kill(t)
			c.again(t)
		},
	}
	if userRuntime == "" {
		interruptions["runtime"] = func() { c.killRuntime(t) }
	}
	for name, interrupt := range interruptions {
		hooked := name + "-hooked"
		s.apply(stubborn(name, dir, "") + stubborn(hooked, dir, hook(hooked)))
		s.ready(name)
		s.ready(hooked)
		began := time.Now()
		s.kubectl("delete", "pod", name, hooked, "--wait=false")
		time.Sleep(time.Until(began.Add(5 * time.Second)))
		killed := time.Now().Unix()
		interrupt()
		restarted := time.Now().Unix()
		s.gone("pod", name)
		s.gone("pod", hooked)
		// What was left of the grace period would be 3 s.
		if end := notes(t, dir, name+".alive")[0]; end-killed < 7 || end-restarted > 14 {
			t.Errorf("%s lived for %d s after the interruption and %d s after the restart, want 8 s", name, end-killed, end-restarted)
		}
		// The hook is part of the grace period, which begins before it.
		hooks := notes(t, dir, hooked+".hook")
		if len(hooks) != 2 {
			t.Fatalf("%s: the hook ran at %v, want twice", hooked, hooks)
		}
		if lived := notes(t, dir, hooked+".alive")[0] - hooks[1]; lived < 5 || lived > 9 {
			t.Errorf("%s lived for %d s after the second hook began, want 8", hooked, lived)
		}
	}
}

// notes returns the times in a file, in seconds; none if it does not exist.
func notes(t *testing.T, dir, name string) []int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var times []int64
	for _, field := range strings.Fields(string(text)) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, n)
	}
	return times
}

// killRuntime kills the node's containerd, which Kindred starts again. Shims are other programs.
func (c *cluster) killRuntime(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, _ := os.ReadFile(file)
		program, rest, _ := bytes.Cut(line, []byte{0})
		if filepath.Base(string(program)) != "containerd" || !bytes.Contains(rest, []byte(c.dir)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("the node's containerd does not run")
}
