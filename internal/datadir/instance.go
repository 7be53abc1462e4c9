// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kindred-project/kindred/internal/durable"
)

// Instance describes what runs in a data directory. It is written when the cluster is ready, and
// stays when the cluster stops, because it helps to find what still runs, such as containers.
type Instance struct {
	// PID is the process that runs the cluster.
	PID int `json:"pid"`
	// Version is that process's version.
	Version string `json:"version"`
	// StartedAt is when it was started.
	StartedAt time.Time `json:"startedAt"`
	// Server is the URL of the API; empty if only a node runs, without an API.
	Server string `json:"server"`
	// Etcd lists the endpoints of the store; empty means the embedded one.
	Etcd []string `json:"etcd,omitempty"`
	// EtcdMember is the URL of the embedded one for clients, if it is a member of a cluster.
	EtcdMember string `json:"etcdMember,omitempty"`
	// NodeName is the name of this machine's node, empty if it has none.
	NodeName string `json:"nodeName,omitempty"`
	// ContainerRuntime is the CRI endpoint of that node.
	ContainerRuntime string `json:"containerRuntime,omitempty"`
	// KubeletDir is a link to that node's directory, if there is one.
	KubeletDir string `json:"kubeletDir,omitempty"`
	// SimulatedNodes is how many simulated nodes run beside it.
	SimulatedNodes int `json:"simulatedNodes,omitempty"`
}

// WriteInstance stores what runs here. Only the holder of the lock may call it.
func (l Layout) WriteInstance(instance Instance) error {
	text, err := json.MarshalIndent(instance, "", "  ")
	if err != nil {
		return err
	}
	return l.wrap(durable.WriteFile(l.instanceFile(), append(text, '\n'), 0o644))
}

// ReadInstance returns what runs here or ran here last, and whether anything ever did.
// [Layout.Holder] tells which of the two it is.
func (l Layout) ReadInstance() (Instance, bool, error) {
	text, err := os.ReadFile(l.instanceFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Instance{}, false, nil
	}
	if err != nil {
		return Instance{}, false, l.wrap(unreadable(err))
	}
	var instance Instance
	if err := json.Unmarshal(text, &instance); err != nil {
		return Instance{}, false, l.wrap(fmt.Errorf("kindred.json: %w", err))
	}
	return instance, true, nil
}
