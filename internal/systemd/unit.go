// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"fmt"
	"strings"
)

// marker is the first line of a unit that Kindred wrote. A unit without it is never replaced or removed.
const marker = "# Written by \"kindred install\". Changes are lost when it runs again; use a drop-in (systemctl edit kindred)."

// Unit is a command line to run as a service.
type Unit struct {
	// Command is the program, as an absolute path, and its arguments.
	Command []string
	// Dir is the directory that relative paths in the arguments refer to.
	Dir string
}

// Text returns the unit file.
//
// containerd and its shims outlive the process. They are in a cgroup of their own, to which containerd moves itself when it
// starts; until then, KillMode=process leaves it alone when the service stops, OOMPolicy=continue keeps the service if it is
// killed, and no limit on tasks applies. The service is ready when the cluster is, which has its own time limits for each step of the start.
func (u Unit) Text() string {
	words := make([]string, len(u.Command))
	for i, word := range u.Command {
		words[i] = quote(word)
	}
	return fmt.Sprintf(`%s
[Unit]
Description=Kindred, a Kubernetes cluster in one process
Wants=network-online.target
After=network-online.target dbus.service

[Service]
Type=notify
NotifyAccess=main
ExecStart=%s
WorkingDirectory=-%s
Restart=always
RestartSec=2
TimeoutStartSec=infinity
TimeoutStopSec=60
KillMode=process
Delegate=yes
TasksMax=infinity
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
OOMScoreAdjust=-999
OOMPolicy=continue

[Install]
WantedBy=multi-user.target
`, marker, strings.Join(words, " "), strings.ReplaceAll(u.Dir, "%", "%%"))
}

// quote writes a word of a command line as systemd.service(5) reads it: specifiers (%) and variables ($) are escaped, and what
// would end the word is quoted.
func quote(word string) string {
	word = strings.NewReplacer(`%`, `%%`, `$`, `$$`, `\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(word)
	if word == "" || word == ";" || strings.ContainsAny(word, " '\"") {
		return `"` + word + `"`
	}
	return word
}
