// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Interface is a network interface and what it has received and sent.
type Interface struct {
	Name   string
	Rx, Tx Traffic
}

// Traffic is what went through an interface in one direction.
type Traffic struct{ Bytes, Packets, Errors, Dropped uint64 }

// interfacesOf returns the interfaces in the network namespace of a process but its loopback.
func interfacesOf(pid int) ([]Interface, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return nil, err
	}
	return parseInterfaces(string(text))
}

// machineInterfaces returns the interfaces of the machine without those of pods, and the name of the one with the default
// route.
func machineInterfaces() ([]Interface, string, error) {
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return nil, "", err
	}
	interfaces, err := parseInterfaces(string(text))
	var own []Interface
	for _, i := range interfaces {
		if !strings.HasPrefix(i.Name, "veth") {
			own = append(own, i)
		}
	}
	routes, _ := os.ReadFile("/proc/self/net/route") // a machine without IPv4 has no default interface here
	return own, defaultInterface(string(routes)), err
}

// parseInterfaces parses /proc/net/dev.
func parseInterfaces(text string) ([]Interface, error) {
	var all []Interface
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !found || name == "lo" {
			continue
		}
		numbers := make([]uint64, 0, 16)
		for _, field := range strings.Fields(rest) {
			number, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("statistics of the interface %s: %w", name, err)
			}
			numbers = append(numbers, number)
		}
		if len(numbers) < 12 {
			return nil, errors.New("statistics of the interface " + name + " have too few fields")
		}
		all = append(all, Interface{
			Name: name,
			Rx:   Traffic{Bytes: numbers[0], Packets: numbers[1], Errors: numbers[2], Dropped: numbers[3]},
			Tx:   Traffic{Bytes: numbers[8], Packets: numbers[9], Errors: numbers[10], Dropped: numbers[11]},
		})
	}
	return all, nil
}

// defaultInterface returns the interface of the default route in /proc/net/route; "" if there is none.
func defaultInterface(text string) string {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "00000000" {
			return fields[0]
		}
	}
	return ""
}
