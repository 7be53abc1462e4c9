// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/assign"
	"github.com/kindred-project/kindred/internal/node/deviceplugin"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// openResources makes what assigns CPUs, memory and devices to containers.
func (a *Agent) openResources() error {
	o, layout, facts := a.options, a.options.layout(), a.registration.reporter.machine
	machine, err := topology.Read(os.DirFS("/sys"), uint64(facts.memory))
	if err != nil {
		return fmt.Errorf("read the topology of the machine: %w", err)
	}
	a.registration.reporter.machine.cores, a.registration.reporter.machine.sockets = machine.Cores(), machine.Sockets()
	a.plugins, err = deviceplugin.New(deviceplugin.Options{
		Dir: layout.DevicePluginsDir(), Nodes: machine.NodeMask(), Clock: o.Clock, Observer: a.metrics,
		Changed: func(resource string, ids []string) {
			a.registration.check()
			a.assigned.DevicesChanged(resource, ids)
		},
	})
	if err != nil {
		return err
	}
	a.registration.reporter.devices = a.plugins.Counts
	a.assigned, err = assign.New(assign.Options{
		Dir: layout.AssignedDir(), Config: o.Config, Machine: machine, Reserved: facts.unallocatable(o.Config),
		Plugins: a.plugins, Runtime: a.view, Clock: o.Clock, Wake: a.wake, Observer: a.metrics,
	})
	if err != nil {
		return err
	}
	a.cgroups.Unlimited = a.assigned.HasCPUs
	return nil
}

// wake has a pod's worker decide again.
func (a *Agent) wake(uid types.UID) { a.pods.Wake(uid) }
