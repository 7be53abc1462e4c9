// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"k8s.io/component-helpers/node/util/sysctl"
)

// kernel has parameters, some of which cannot be set.
type kernel struct {
	parameters map[string]int
	readOnly   string
}

func (k *kernel) GetSysctl(name string) (int, error) {
	value, ok := k.parameters[name]
	if !ok {
		return 0, errors.New("no parameter " + name)
	}
	return value, nil
}

func (k *kernel) SetSysctl(name string, value int) error {
	if name == k.readOnly {
		return errors.New("read-only file system")
	}
	k.parameters[name] = value
	return nil
}

func expectedParameters() map[string]int {
	return map[string]int{
		"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
		"kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
	}
}

func TestCheckKernel(t *testing.T) {
	if err := checkKernel(&kernel{parameters: expectedParameters()}); err != nil {
		t.Error(err)
	}
	other := expectedParameters()
	other["kernel/panic"], other["vm/panic_on_oom"] = 0, 2
	err := checkKernel(&kernel{parameters: other})
	for _, want := range []string{
		"invalid kernel flag: vm/panic_on_oom, expected value: 0, actual value: 2", "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if err := checkKernel(&kernel{}); err == nil {
		t.Error("parameters that cannot be read passed")
	}
}

// TestSetKernel: a parameter that cannot be set does not keep the others from it.
func TestSetKernel(t *testing.T) {
	k := &kernel{readOnly: sysctl.KernelPanic, parameters: map[string]int{}}
	want := expectedParameters()
	for name := range want {
		k.parameters[name] = 7
	}
	want[sysctl.KernelPanic] = 7
	setKernel(k)
	if !maps.Equal(k.parameters, want) {
		t.Errorf("got %v, want %v", k.parameters, want)
	}
}
