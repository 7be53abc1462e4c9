// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindredtest

import "strconv"

// Option changes how Start runs a cluster.
type Option func(*settings)

type settings struct {
	binary         string
	simulatedNodes int
	args           []string
}

func newSettings(options []Option) settings {
	s := settings{simulatedNodes: 1}
	for _, option := range options {
		option(&s)
	}
	return s
}

// command returns the arguments of the program.
func (s settings) command(dataDir string) []string {
	args := []string{
		"up", "--data-dir", dataDir, "--secure-port", "0",
		"--no-node", "--simulated-nodes", strconv.Itoa(s.simulatedNodes),
	}
	return append(args, s.args...)
}

// SimulatedNodes sets the number of nodes; the default is 1. With 0, pods stay pending.
func SimulatedNodes(n int) Option {
	return func(s *settings) { s.simulatedNodes = n }
}

// Args adds arguments to the command line of "kindred up", which override the flags set by
// Start. "kindred up --help" lists them.
func Args(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// Binary sets the path of the kindred binary.
func Binary(path string) Option {
	return func(s *settings) { s.binary = path }
}
