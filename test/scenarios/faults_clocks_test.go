// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// clockFaults are clocks that jump. Each is put right again while the cluster is watched.
func clockFaults() []fault {
	another := func(b *faultBed) int { return (b.leads() + 1) % len(b.servers) }
	return []fault{
		{name: "leader an hour ahead", inject: func(b *faultBed) func() { return b.serverJumps(b.leads(), time.Hour) }, hold: cutOff},
		{name: "leader an hour behind", inject: func(b *faultBed) func() { return b.serverJumps(b.leads(), -time.Hour) }, hold: cutOff},
		{name: "server an hour ahead", inject: func(b *faultBed) func() { return b.serverJumps(another(b), time.Hour) }, hold: cutOff},
		{name: "server an hour behind", inject: func(b *faultBed) func() { return b.serverJumps(another(b), -time.Hour) }, hold: cutOff},
		{name: "node an hour ahead", inject: func(b *faultBed) func() { return b.nodeJumps(time.Hour) }, hold: cutOff},
		{name: "node an hour behind", inject: func(b *faultBed) func() { return b.nodeJumps(-time.Hour) }, hold: cutOff},
	}
}

// serverJumps makes the clock of a server jump, as the time in its answers shows.
func (b *faultBed) serverJumps(server int, ahead time.Duration) (heal func()) {
	b.Helper()
	heal = b.lan.jump(1+server, ahead)
	config := b.servers[server].config(b.T)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	b.within(5*time.Second, "the server's clock has jumped", func() error {
		response, err := client.Get(config.Host + "/livez")
		if err != nil {
			return err
		}
		response.Body.Close()
		at, err := http.ParseTime(response.Header.Get("Date"))
		return errors.Join(err, isAhead(at, ahead))
	})
	return heal
}

// nodeJumps makes the clock of a node jump, as the Lease that it renews shows.
func (b *faultBed) nodeJumps(ahead time.Duration) (heal func()) {
	b.Helper()
	heal = b.lan.jump(farNode, ahead)
	b.within(30*time.Second, "the node's clock has jumped", func() error {
		lease, err := b.cluster.client(b.T).CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(b.Context(), "far", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return isAhead(lease.Spec.RenewTime.Time, ahead)
	})
	return heal
}

// isAhead returns an error unless a time is that of a clock which is ahead.
func isAhead(at time.Time, ahead time.Duration) error {
	if off := time.Until(at) - ahead; off.Abs() > time.Minute {
		return fmt.Errorf("it says %s", at)
	}
	return nil
}

// TestFaultsOfClocks makes the clocks of machines jump, one after the other, under load. Network namespaces share the clock of the kernel, so
// that the program is one whose wall clock the test can set.
func TestFaultsOfClocks(t *testing.T) {
	needFaults(t)
	l := newLAN(t)
	l.build, l.clocks = jumpingBuild(t), t.TempDir()
	b := newFaultBed(t, l, "--etcd-embedded")
	for _, f := range clockFaults() {
		t.Run(f.name, func(t *testing.T) { b.survives(t, f) })
	}
}

// clockVariable names a file with the seconds by which the wall clock of a process of jumpingBuild is ahead.
const clockVariable = "KINDRED_TEST_CLOCK"

// clock returns the file with the seconds of a machine.
func (l *lan) clock(number int) string { return filepath.Join(l.clocks, strconv.Itoa(number)) }

// jump sets the wall clock of a machine ahead; the monotonic one goes on, as when an administrator sets the time.
func (l *lan) jump(number int, ahead time.Duration) (heal func()) {
	l.set(number, ahead)
	return func() { l.set(number, 0) }
}

func (l *lan) set(number int, ahead time.Duration) {
	l.t.Helper()
	next := l.clock(number) + ".next"
	err := os.WriteFile(next, []byte(strconv.Itoa(int(ahead.Seconds()))), 0o600)
	if err == nil {
		err = os.Rename(next, l.clock(number)) // never read while it is written
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// The change of Go's package time in jumpingBuild.
const (
	readsClock = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	jumpsClock = readsClock + "\tsec += jump.Load()\n"
	jumpSource = `package time

import (
	"sync/atomic"
	"syscall"
)

var jump atomic.Int64

func init() {
	if file, ok := syscall.Getenv("` + clockVariable + `"); ok {
		go followJumps(file)
	}
}

func followJumps(file string) {
	for ; ; Sleep(20 * Millisecond) {
		fd, err := open(file)
		if err != nil {
			continue
		}
		text := make([]byte, 16)
		n, _ := read(fd, text)
		closefd(fd)
		if seconds, err := atoi(text[:n]); err == nil {
			jump.Store(int64(seconds))
		}
	}
}
`
)

// jumpingBuild builds kindred with a wall clock that clockVariable sets.
func jumpingBuild(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	library, dir := filepath.Join(strings.TrimSpace(string(root)), "src", "time"), t.TempDir()
	text, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), readsClock) != 1 {
		t.Fatalf("time.Now of this Go is not\n%s", readsClock)
	}
	replaced := map[string]string{}
	for name, content := range map[string]string{"time.go": strings.Replace(string(text), readsClock, jumpsClock, 1), "jump.go": jumpSource} {
		replaced[filepath.Join(library, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kindred")
	build := exec.Command("make", "-C", "../..", "build", "BIN="+file)
	build.Env = append(os.Environ(), "GOFLAGS=-overlay="+filepath.Join(dir, "overlay.json"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}
