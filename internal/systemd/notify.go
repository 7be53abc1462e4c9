// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"fmt"
	"net"
	"os"
)

// The states of a service, see sd_notify(3).
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Status is a line that "systemctl status" shows.
func Status(line string) string { return "STATUS=" + line }

// Notifier notifies systemd of the state of this process. The zero value does nothing.
type Notifier struct{ socket string }

// TakeNotifier returns the notifier of this process, and removes its socket from the environment: k8s.io/apiserver would
// notify systemd as soon as it listens, which is before the cluster is ready.
func TakeNotifier() (Notifier, error) {
	const variable = "NOTIFY_SOCKET"
	n := Notifier{os.Getenv(variable)}
	return n, os.Unsetenv(variable)
}

// Notify notifies systemd of a state. If systemd did not start the process, it does nothing.
func (n Notifier) Notify(state string) error {
	if n.socket == "" {
		return nil
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer socket.Close()
	if _, err := socket.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
