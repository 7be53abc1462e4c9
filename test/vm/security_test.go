// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"testing"
)

// profile is an AppArmor profile that forbids one file.
const profile = `profile kindred-test flags=(attach_disconnected, mediate_deleted) {
  file,
  network,
  capability,
  signal,
  deny /denied w,
}
`

func apparmor(fields string) string { return "{securityContext: {appArmorProfile: " + fields + "}}" }

func (m *machine) testAppArmor(t *testing.T) {
	m.sh(t, "cat >/tmp/profile <<'END'\n"+profile+"END\napparmor_parser -r /tmp/profile")
	m.apply(t, pod("default", "{}", apparmor("{type: RuntimeDefault}"))+
		pod("unconfined", "{}", apparmor("{type: Unconfined}"))+
		pod("localhost", "{}", apparmor("{type: Localhost, localhostProfile: kindred-test}"))+
		pod("missing", "{}", apparmor("{type: Localhost, localhostProfile: no-such-profile}")))
	m.ready(t, "default", "unconfined", "localhost")
	for name, want := range map[string]string{
		"default": "cri-containerd.apparmor.d (enforce)", "unconfined": "unconfined", "localhost": "kindred-test (enforce)",
	} {
		is(t, "profile of pod "+name, m.sh(t, "cat /proc/$(head -1 "+m.container(t, name)+"/cgroup.procs)/attr/current"), want)
	}
	m.kubectl(t, "exec", "localhost", "--", "touch", "/allowed")
	if _, err := m.try("", "exec", "localhost", "--", "touch", "/denied"); err == nil {
		t.Error("the profile was not enforced")
	} else {
		has(t, "write of a forbidden file", err.Error(), "Permission denied")
	}
	await(t, "the pod with a missing profile waits", func() error {
		const waiting = ".status.containerStatuses[0].state.waiting"
		if got := m.field(t, "missing", waiting+".reason"); got != "CreateContainerError" {
			return fmt.Errorf("its reason is %q", got)
		}
		has(t, "message", m.field(t, "missing", waiting+".message"), "no-such-profile")
		return nil
	})
}

// server and client are programs for the machine's Perl, because busybox has no SCTP (protocol 132).
const (
	server = `use Socket; socket(S, AF_INET, SOCK_STREAM, 132) or die $!; bind(S, sockaddr_in(5000, INADDR_ANY)) or die $!; ` +
		`listen(S, 5) or die $!; while (accept(C, S)) { syswrite C, qq(hello\n); close C }`
	client = `use Socket; alarm 20; socket(S, AF_INET, SOCK_STREAM, 132) or die $!; connect(S, sockaddr_in(5000, inet_aton(shift))) or die $!; ` +
		`sysread S, $b, 99; print $b`
)

const sctpService = `apiVersion: v1
kind: Service
metadata: {name: sctp}
spec:
  selector: {app: sctp}
  ports: [{port: 5000, protocol: SCTP}]
`

// testSCTP: a Service carries SCTP between pods, which run the machine's Perl.
func (m *machine) testSCTP(t *testing.T) {
	m.sh(t, "modprobe sctp")
	spec := "{volumes: [{name: host, hostPath: {path: /}}]}"
	mounts := "volumeMounts: [{name: host, mountPath: /host}]"
	m.apply(t, pod("sctp", spec, "{"+mounts+", ports: [{containerPort: 5000, protocol: SCTP}]}")+pod("peer", spec, "{"+mounts+"}")+sctpService)
	m.ready(t, "sctp", "peer")
	m.kubectl(t, "exec", "sctp", "--", "sh", "-c", "chroot /host perl -e '"+server+"' >/dev/null 2>&1 &")
	ip := m.kubectl(t, "get", "service", "sctp", "-o=jsonpath={.spec.clusterIP}")
	await(t, "an answer over SCTP", func() error {
		got, err := m.try("", "exec", "peer", "--", "chroot", "/host", "perl", "-e", client, ip)
		if err == nil && got != "hello" {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
	m.kubectl(t, "delete", "service", "sctp")
}
