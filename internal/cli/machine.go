// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kindred-project/kindred/internal/host"
)

// machinesDir is the flag with the directory of the machines of this host.
const machinesDir = "machines-dir"

func newMachine() *cobra.Command {
	cmd := group("machine", "Machines on this host, in namespaces of their own",
		newMachineCreate(), newMachineApply(), newMachineList(), newMachineDelete(), newMachineExec(), newMachineEndpoint(), newMachineInstall(),
		firstProcess(host.EnterCommand, host.Enter), firstProcess(host.RunCommand, host.Run))
	cmd.Long = `A machine on this host has namespaces of its own (network, mounts, processes, cgroups), an
address on a bridge, a data directory, and runs Kindred: as a server with a node, or as a
node that joins. It needs no container engine, and goes on when the command has ended.`
	addMachinesDir(cmd.PersistentFlags())
	return cmd
}

func addMachinesDir(flags *pflag.FlagSet) {
	flags.String(machinesDir, host.DefaultRoot, "directory of the machines of this host")
}

// hostOf returns the machines in the directory of the flag.
func hostOf(cmd *cobra.Command) (*host.Host, error) {
	dir, err := cmd.Flags().GetString(machinesDir)
	if err != nil {
		return nil, err
	}
	return host.Open(dir)
}

// onHost returns what runs a command on the machines in the directory of the flag.
func onHost(run func(cmd *cobra.Command, h *host.Host, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		h, err := hostOf(cmd)
		if err != nil {
			return err
		}
		return run(cmd, h, args)
	}
}

func newMachineCreate() *cobra.Command {
	return &cobra.Command{
		Use:     "create NAME -- COMMAND [FLAG...]",
		Short:   "Make a machine that runs this program with the given command",
		Example: "  kindred machine create one -- up --server\n  kindred machine create two -- join https://10.192.0.2:6443 --token ... --ca-hash ...",
		Args:    cobra.MinimumNArgs(2),
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, args []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			m, err := h.Apply(cmd.Context(), host.Spec{Name: args[0], Program: program, Args: args[1:]}, nil)
			if err != nil {
				return err
			}
			printf(cmd, "machine %s has the address %s\n", m.Name, m.Address.Addr())
			printf(cmd, "its log is %s, its data directory %s\n", h.Log(m.Name), h.DataDir(m.Name))
			return nil
		}),
	}
}

// machineRequest is what "kindred machine apply" reads.
type machineRequest struct {
	host.Spec
	Files []host.File `json:"files,omitempty"`
}

func newMachineApply() *cobra.Command {
	return &cobra.Command{
		Use:   "apply",
		Short: "Make a machine as described on standard input, in JSON, unless it exists",
		Args:  cobra.NoArgs,
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, _ []string) error {
			var request machineRequest
			if err := readRequest(cmd, &request); err != nil {
				return err
			}
			m, err := h.Apply(cmd.Context(), request.Spec, request.Files)
			if err != nil {
				return err
			}
			return printJSON(cmd, m)
		}),
	}
}

// readRequest decodes standard input.
func readRequest(cmd *cobra.Command, into any) error {
	decoder := json.NewDecoder(cmd.InOrStdin())
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return usagef("standard input: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return usagef("standard input has more than one JSON object")
	}
	return nil
}

func newMachineList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the machines of this host",
		Args:  cobra.NoArgs,
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, _ []string) error {
			asJSON, err := wantsJSON(output)
			if err != nil {
				return err
			}
			machines, err := h.List()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, append([]host.Machine{}, machines...))
			}
			printMachines(cmd, machines)
			return nil
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json instead of a table")
	return cmd
}

func printMachines(cmd *cobra.Command, machines []host.Machine) {
	rows := [][]string{{"NAME", "PHASE", "ADDRESS", "RUNS"}}
	for _, m := range machines {
		rows = append(rows, []string{m.Name, phaseOf(m), m.Address.Addr().String(), "kindred " + strings.Join(m.Args, " ")})
	}
	for _, line := range layOut(pageWidth(cmd), rows, 40, 10, 15) {
		printf(cmd, "%s\n", line)
	}
}

// phaseOf is the phase of a machine, and how Kindred ended in it lately.
func phaseOf(m host.Machine) string {
	if m.Ends.Count == 0 {
		return string(m.Phase)
	}
	return fmt.Sprintf("%s (kindred ended %d times: %s)", m.Phase, m.Ends.Count, m.Ends.Last)
}

func newMachineDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME...",
		Short: "End machines and remove them with their data",
		Args:  cobra.MinimumNArgs(1),
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, args []string) error {
			for _, name := range args {
				if err := h.Delete(cmd.Context(), name); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func newMachineExec() *cobra.Command {
	return &cobra.Command{
		Use:     "exec NAME [-- COMMAND [ARGUMENT...]]",
		Short:   "Run a command in a machine, or a shell",
		Example: "  kindred machine exec one -- kindred kubectl get nodes",
		Args:    cobra.MinimumNArgs(1),
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, args []string) error {
			m, found, err := h.Get(args[0])
			switch {
			case err != nil:
				return err
			case !found:
				return fmt.Errorf("there is no machine %s; \"kindred machine list\" shows those of this host", args[0])
			case m.Phase != host.Running:
				return fmt.Errorf("machine %s does not run (%s)", m.Name, m.Phase)
			}
			return enter(m, args[1:])
		}),
	}
}

// enter replaces this process by a command in a machine.
func enter(m host.Machine, command []string) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("%w; it is in the package util-linux", err)
	}
	if len(command) == 0 {
		command = []string{"/bin/sh"}
	}
	args := append([]string{nsenter, "--target", strconv.Itoa(m.PID), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}, command...)
	env := []string{"PATH=" + host.ProgramDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=" + os.Getenv("TERM")}
	return syscall.Exec(nsenter, args, env)
}

func newMachineEndpoint() *cobra.Command {
	return group("endpoint", "Addresses of this host that lead to the servers of a cluster", newEndpointSet(), newEndpointDelete())
}

func newEndpointSet() *cobra.Command {
	return &cobra.Command{
		Use:   "set",
		Short: "Make or change an endpoint as described on standard input, in JSON",
		Args:  cobra.NoArgs,
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, _ []string) error {
			var endpoint host.Endpoint
			if err := readRequest(cmd, &endpoint); err != nil {
				return err
			}
			endpoint, err := h.SetEndpoint(cmd.Context(), endpoint)
			if err != nil {
				return err
			}
			return printJSON(cmd, endpoint)
		}),
	}
}

func newEndpointDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Remove an endpoint",
		Args:  cobra.ExactArgs(1),
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, args []string) error {
			return h.DeleteEndpoint(cmd.Context(), args[0])
		}),
	}
}

func newMachineInstall() *cobra.Command {
	return &cobra.Command{
		Use:   "install VERSION",
		Short: "Keep this program as the one of machines of a version, and print its path",
		Args:  cobra.ExactArgs(1),
		RunE: onHost(func(cmd *cobra.Command, h *host.Host, args []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			path, err := h.InstallProgram(args[0], program)
			if err != nil {
				return err
			}
			printf(cmd, "%s\n", path)
			return nil
		}),
	}
}

// firstProcess returns a command that only the first process of a machine runs.
func firstProcess(use string, run func(dir string) error) *cobra.Command {
	return &cobra.Command{
		Use:    use + " DIRECTORY",
		Short:  "Be the first process of a machine",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if os.Getpid() != 1 {
				return errors.New("this command is for the first process of a machine")
			}
			return run(args[0])
		},
	}
}
