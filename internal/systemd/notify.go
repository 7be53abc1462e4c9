// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"fmt"

	"github.com/coreos/go-systemd/v22/daemon"
)

// The states of a service, see sd_notify(3).
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
)

// Status is a line that "systemctl status" shows.
func Status(line string) string { return "STATUS=" + line }

// Notify notifies systemd of a state of this process. If systemd did not start it, Notify does nothing.
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
