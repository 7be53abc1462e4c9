// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	criclient "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"github.com/kindred-project/kindred/internal/node/environment"
	"github.com/kindred-project/kindred/internal/node/httpget"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// maxOutput is how many bytes of a command's output or a server's response are kept.
const maxOutput = 10 << 10

// runProbe runs a probe once.
func (m *Manager) runProbe(ctx context.Context, t *nodepod.ProbeTarget, probe *v1.Probe) (outcome, string, error) {
	timeout := seconds(probe.TimeoutSeconds, 1)
	ip := t.Pod.Status.PodIP
	switch {
	case probe.Exec != nil:
		return m.probeExec(ctx, t, probe.Exec.Command, timeout)
	case probe.HTTPGet != nil:
		return m.probeHTTP(ctx, t.Container, probe.HTTPGet, ip, timeout)
	case probe.TCPSocket != nil:
		return probeTCP(ctx, t.Container, probe.TCPSocket, ip, timeout)
	case probe.GRPC != nil:
		return probeGRPC(ctx, probe.GRPC, ip, timeout)
	}
	return unknown, "", fmt.Errorf("missing probe handler for %s:%s", t.Pod.Name, t.Container.Name)
}

// probeExec succeeds if the command exits with 0.
func (m *Manager) probeExec(ctx context.Context, t *nodepod.ProbeTarget, command []string, timeout time.Duration) (outcome, string, error) {
	stdout, stderr, err := m.options.Runtime.ExecSync(ctx, t.ContainerID, expand(command, t.Container.Env), timeout)
	output := truncate(append(stdout, stderr...))
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return success, output, nil
	case errors.As(err, &exit):
		return failure, output, nil
	case errors.Is(err, criclient.ErrCommandTimedOut):
		return failure, err.Error(), nil
	}
	return unknown, "", err
}

// expand expands $(VAR) in a command. As in the kubelet, a variable with valueFrom expands to nothing.
func expand(command []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for _, variable := range env {
		values[variable.Name] = variable.Value
	}
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = environment.Expand(word, func(name string) (string, bool) {
			value, ok := values[name]
			return value, ok
		})
	}
	return out
}

// probeTCP succeeds if a connection can be opened.
func probeTCP(ctx context.Context, container *v1.Container, action *v1.TCPSocketAction, podIP string, timeout time.Duration) (outcome, string, error) {
	port, err := httpget.Port(action.Port, container)
	if err != nil {
		return unknown, "", err
	}
	host := action.Host
	if host == "" {
		host = podIP
	}
	d := dialer()
	d.Timeout = timeout
	connection, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return failure, err.Error(), nil
	}
	_ = connection.Close()
	return success, "", nil
}

// dialer returns a dialer with a linger time of a second: probes are frequent, and a closed connection
// would otherwise stay in TIME_WAIT for a minute. With 0, unsent data would be lost. No connection lives long enough for
// keep-alives, which take four system calls.
func dialer() *net.Dialer {
	return &net.Dialer{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		failed := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
		return errors.Join(failed, err)
	}}
}

func truncate(output []byte) string {
	return string(output[:min(len(output), maxOutput)])
}
