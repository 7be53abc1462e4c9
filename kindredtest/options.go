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

// command is the command line after the program's name.
func (s settings) command(dataDir string) []string {
	args := []string{
		"up", "--data-dir", dataDir, "--secure-port", "0",
		"--no-node", "--simulated-nodes", strconv.Itoa(s.simulatedNodes),
	}
	return append(args, s.args...)
}

// SimulatedNodes is how many nodes the cluster has; without it, one. With 0 pods
// are never scheduled.
func SimulatedNodes(n int) Option {
	return func(s *settings) { s.simulatedNodes = n }
}

// Args are added to the command line of "kindred up"; a flag here wins over the
// same flag set by Start. "kindred up --help" lists them.
func Args(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// Binary is the path of the kindred binary to run.
func Binary(path string) Option {
	return func(s *settings) { s.binary = path }
}
