// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"testing"
)

// TestMachine runs all scenarios in one machine, in order: a boot and an installation take minutes.
func TestMachine(t *testing.T) {
	bin := os.Getenv("KINDRED_BIN")
	if os.Getenv("KINDRED_VM") == "" || bin == "" {
		t.Skip("it takes half an hour: run \"make vm\"")
	}
	m := boot(t, openImage(t), bin)
	t.Run("systemd", func(t *testing.T) {
		m.install(t, "systemd")
		m.scenario(t, "Cgroups", func(t *testing.T) { m.testCgroups(t, "systemd") })
		m.scenario(t, "Resize", m.testResize)
		m.scenario(t, "RestartOfService", m.testRestart)
		m.scenario(t, "Swap", m.testSwap)
		m.scenario(t, "OOMScores", m.testOOMScores)
		m.scenario(t, "Pressure", m.testPressure)
		m.scenario(t, "AppArmor", m.testAppArmor)
		m.scenario(t, "ProjectQuotas", m.testProjectQuotas)
		m.scenario(t, "SCTP", m.testSCTP)
		m.scenario(t, "Drain", m.testDrain)
		m.scenario(t, "Reboot", m.testReboot)
		t.Run("Reset", m.testReset)
	})
	t.Run("cgroupfs", func(t *testing.T) {
		m.install(t, "cgroupfs")
		m.scenario(t, "Cgroups", func(t *testing.T) { m.testCgroups(t, "cgroupfs") })
		m.scenario(t, "Resize", m.testResize)
		m.scenario(t, "RestartOfService", m.testRestart)
		t.Run("Reset", m.testReset)
	})
	t.Run("Machines", m.testMachines)
}
