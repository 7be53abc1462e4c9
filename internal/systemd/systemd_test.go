// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixture is a Manager of a machine without units, whose systemctl only records its calls.
type fixture struct {
	*Manager
	calls []string
	fail  string // the call that fails
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{}
	f.Manager = &Manager{Root: t.TempDir(), Control: func(_ context.Context, args ...string) (string, error) {
		call := strings.Join(args, " ")
		if call == f.fail {
			return "", errors.New(call + " failed")
		}
		f.calls = append(f.calls, call)
		return "7", nil
	}}
	for _, dir := range []string{"etc/systemd/system", "run/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(f.Root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fixture) called(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.calls); diff != "" {
		t.Errorf("calls of systemctl (-want +got):\n%s", diff)
	}
	f.calls = nil
}

func TestInstallTwiceAndUninstallTwice(t *testing.T) {
	f, ctx := newFixture(t), t.Context()
	unit := Unit{Command: []string{"/bin/kindred", "up"}, Dir: "/"}
	for _, verb := range []string{"restart", "start"} {
		want := verb == "restart"
		changed, err := f.Install(ctx, unit)
		if err != nil || changed != want {
			t.Fatalf("changed: %t, %v; want %t", changed, err, want)
		}
		if err := f.Start(ctx, changed); err != nil {
			t.Fatal(err)
		}
		f.called(t, "daemon-reload", "enable kindred.service", verb+" kindred.service")
	}

	for _, want := range []bool{true, false} {
		if found, err := f.Uninstall(ctx); err != nil || found != want {
			t.Fatalf("found: %t, %v; want %t", found, err, want)
		}
	}
	f.called(t, "disable --now kindred.service", "daemon-reload", "reset-failed kindred.service")
	if _, err := os.Stat(f.File()); !os.IsNotExist(err) {
		t.Errorf("the unit file is left: %v", err)
	}
}

// TestUninstallIsRepeated: the unit stays until the service is stopped.
func TestUninstallIsRepeated(t *testing.T) {
	f, ctx := newFixture(t), t.Context()
	if _, err := f.Install(ctx, Unit{Command: []string{"/bin/kindred"}}); err != nil {
		t.Fatal(err)
	}
	f.fail = "disable --now kindred.service"
	if _, err := f.Uninstall(ctx); err == nil {
		t.Fatal("the service was not stopped, and that is no error")
	}
	f.fail = ""
	if found, err := f.Uninstall(ctx); !found || err != nil {
		t.Errorf("second attempt: %t, %v", found, err)
	}
}

func TestForeignUnitIsKept(t *testing.T) {
	f, ctx := newFixture(t), t.Context()
	const foreign = "[Service]\nExecStart=/bin/true\n"
	if err := os.WriteFile(f.File(), []byte(foreign), 0o644); err != nil {
		t.Fatal(err)
	}
	_, installErr := f.Install(ctx, Unit{})
	_, uninstallErr := f.Uninstall(ctx)
	for _, err := range []error{installErr, uninstallErr} {
		if err == nil || !strings.Contains(err.Error(), "was not written by") {
			t.Errorf("got %v", err)
		}
	}
	if text, _ := os.ReadFile(f.File()); string(text) != foreign {
		t.Errorf("the unit is now %q", text)
	}
	f.called(t)
}

func TestWithoutSystemd(t *testing.T) {
	m := &Manager{Root: t.TempDir()}
	if err := m.check(); err == nil || !strings.Contains(err.Error(), "not booted with systemd") {
		t.Errorf("got %v", err)
	}
}

func TestPID(t *testing.T) {
	f := newFixture(t)
	if pid, err := f.PID(t.Context()); pid != 7 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
	f.called(t, "show --property=MainPID --value kindred.service")
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"--data-dir=/var/lib/kindred": "--data-dir=/var/lib/kindred",
		"":                            `""`,
		";":                           `";"`,
		"a b":                         `"a b"`,
		"it's":                        `"it's"`,
		`say "x"`:                     `"say \"x\""`,
		`back\slash`:                  `back\\slash`,
		"100%":                        "100%%",
		"$HOME":                       "$$HOME",
	} {
		if got := quote(word); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}

func TestUnitText(t *testing.T) {
	text := Unit{Command: []string{"/opt/my tools/kindred", "up", "--secure-port=0"}, Dir: "/root"}.Text()
	lines := strings.Split(text, "\n")
	for _, want := range []string{
		`ExecStart="/opt/my tools/kindred" up --secure-port=0`, "WorkingDirectory=-/root", "Type=notify", "KillMode=process",
		"Delegate=yes", "Restart=always", "OOMScoreAdjust=-999", "OOMPolicy=continue", "After=network-online.target dbus.service",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	if lines[0] != marker {
		t.Errorf("the first line is %q", lines[0])
	}
}

func TestNotify(t *testing.T) {
	if err := (Notifier{}).Notify(Ready); err != nil {
		t.Errorf("without systemd: %v", err)
	}
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	notifier, err := TakeNotifier()
	if left, found := os.LookupEnv("NOTIFY_SOCKET"); err != nil || found {
		t.Errorf("the variable is still %q, %v", left, err)
	}
	for _, state := range []string{Ready, Stopping} {
		if err := notifier.Notify(state); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 100)
		n, err := socket.Read(got)
		if err != nil || string(got[:n]) != state {
			t.Errorf("received %q, %v; want %q", got[:n], err, state)
		}
	}
}
