// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kindred-project/kindred"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/systemd"
)

func newInstall(version string) *cobra.Command {
	options := kindred.Options{Audit: kindred.NewAuditOptions()}
	var noStart bool
	var release string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Run a cluster as a service of systemd, from boot on",
		Long: `Writes the unit ` + systemd.Name + `, which runs "kindred up" with the flags given here, enables
it, so that the cluster is started at boot, and starts it. Nothing is copied: the unit
refers to this program and to the files that flags name. Containers outlive the service,
so that it can be restarted without disturbing them. A machine that joins a cluster as a
server gets the keys first, so that the token and the key are not written to the unit.

Repeat the command to change flags. "kindred uninstall" removes the unit.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			options.DataDir, options.Version = layout.Root, version
			if _, err := openClusterAPI(cmd, release); err != nil {
				return err
			}
			return install(cmd, layout, options, !noStart)
		},
	}
	cmd.AddCommand(newInstallJoin(version))
	sections := upFlags(&options, &release)
	sections.FlagSet("service").BoolVar(&noStart, noStartFlag, false, "start the cluster at the next boot, not now")
	inSections(cmd, sections)
	return cmd
}

const noStartFlag = "no-start"

func newUninstall() *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service of systemd and remove it",
		Long: `Stops the service that "kindred install" has set up, and removes its unit. Containers
keep running and data is kept; "kindred reset" stops and removes them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return uninstall(cmd) },
	}
}

// install sets up the service of a cluster. It changes nothing if "kindred up" would refuse the flags.
func install(cmd *cobra.Command, layout datadir.Layout, options kindred.Options, start bool) error {
	if err := options.Check(cmd.Context()); err != nil {
		return upError(cmd.Context(), err)
	}
	manager, err := prepareService(cmd, layout, start)
	if err != nil {
		return err
	}
	if options.Join != "" {
		// Everybody who has an account on the machine can read units.
		if err := kindred.AdmitServer(cmd.Context(), options); err != nil {
			return upError(cmd.Context(), err)
		}
	}
	if err := runService(cmd, layout, manager, "up", start, "token", "ca-hash", "certificate-key"); err != nil || !start {
		return err
	}
	printf(cmd, "ready\nexport KUBECONFIG=%s\n", layout.Kubeconfig())
	return nil
}

// prepareService checks whether a service can be set up for a data directory.
func prepareService(cmd *cobra.Command, layout datadir.Layout, start bool) (*systemd.Manager, error) {
	manager, err := serviceManager("install")
	if err != nil {
		return nil, err
	}
	if err := layout.Check(); err != nil && !errors.Is(err, datadir.ErrEmpty) {
		return nil, err
	}
	if err := checkForeground(cmd, layout, manager); start && err != nil {
		return nil, err
	}
	return manager, nil
}

// runService sets up the service of a verb, without the flags that are left out, and starts it, unless it is to start at the next boot.
func runService(cmd *cobra.Command, layout datadir.Layout, manager *systemd.Manager, verb string, start bool, leftOut ...string) error {
	unit, err := unitFor(cmd, layout, verb, leftOut...)
	if err != nil {
		return err
	}
	changed, err := manager.Install(cmd.Context(), unit)
	if err != nil {
		return err
	}
	printf(cmd, "installed %s\n", manager.File())
	if !start {
		printf(cmd, "it starts at the next boot, or with \"systemctl start kindred\"\n")
		return nil
	}
	return manager.Start(cmd.Context(), changed)
}

func uninstall(cmd *cobra.Command) error {
	manager, err := serviceManager("uninstall")
	if err != nil {
		return err
	}
	found, err := manager.Uninstall(cmd.Context())
	if err != nil {
		return err
	}
	if !found {
		printf(cmd, "nothing to remove: %s is not installed\n", systemd.Name)
		return nil
	}
	printf(cmd, "removed %s\ncontainers keep running and data is kept; \"kindred reset\" stops and removes them\n", manager.File())
	return nil
}

// serviceManager returns the manager of the service, for a command that only root may run.
func serviceManager(verb string) (*systemd.Manager, error) {
	manager, err := systemd.NewManager()
	if err == nil && os.Geteuid() != 0 {
		err = fmt.Errorf("only root can change services; run \"sudo kindred %s\"", verb)
	}
	return manager, err
}

// checkForeground refuses a data directory whose cluster runs, but not as the service.
func checkForeground(cmd *cobra.Command, layout datadir.Layout, manager *systemd.Manager) error {
	holder, err := layout.Holder()
	if err != nil || holder == 0 {
		return err
	}
	service, err := manager.PID(cmd.Context())
	if err != nil || service == holder {
		return err
	}
	return fmt.Errorf("the cluster in %s runs already (process %d); stop it first", layout.Root, holder)
}

// unitFor returns the unit that runs a verb with the flags of an install command, without those that are left out.
func unitFor(cmd *cobra.Command, layout datadir.Layout, verb string, leftOut ...string) (systemd.Unit, error) {
	program, err := os.Executable()
	if err != nil {
		return systemd.Unit{}, fmt.Errorf("find the path of this program: %w", err)
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return systemd.Unit{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return systemd.Unit{}, err
	}
	args, err := flagsOf(cmd.Flags(), leftOut...)
	command := append([]string{program, verb, "--" + dataDirFlag + "=" + layout.Root}, args...)
	return systemd.Unit{Command: command, Dir: dir}, err
}

// flagsOf returns the flags that were given, except those of the installation and the ones that are left out, as arguments that set them to
// the same values.
func flagsOf(flags *pflag.FlagSet, leftOut ...string) (args []string, err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Name == dataDirFlag || f.Name == noStartFlag || slices.Contains(leftOut, f.Name) {
			return
		}
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			var joined error
			value, joined = csvLine(list.GetSlice())
			err = errors.Join(err, joined)
		}
		args = append(args, "--"+f.Name+"="+value)
	})
	return args, err
}

// csvLine joins the values of a list as its flag reads them.
func csvLine(values []string) (string, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.Write(values); err != nil {
		return "", err
	}
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n"), w.Error()
}
