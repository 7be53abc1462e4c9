// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kindred-project/kindred/internal/durable"
)

// ServerName returns the name of the server with this data directory among the servers of a cluster: that of the machine and
// five characters, because several servers may run on one machine. The first call chooses it. Only the holder of the lock may
// call it.
func (l Layout) ServerName() (string, error) {
	text, err := os.ReadFile(l.serverFile())
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", l.wrap(unreadable(err))
	}
	host, err := os.Hostname()
	if host = strings.ToLower(host); err != nil || len(validation.IsDNS1123Label(host)) > 0 {
		host = "server"
	}
	name := fmt.Sprintf("%s-%s", host, rand.String(5))
	return name, l.wrap(durable.WriteFile(l.serverFile(), []byte(name+"\n"), 0o644))
}
