// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kindred-project/kindred/internal/datadir"
)

const dataDirFlag = "data-dir"

func addDataDirFlag(root *cobra.Command) {
	// Without a home directory there is no default, and the flag is required.
	path, _ := datadir.Default()
	root.PersistentFlags().String(dataDirFlag, path, "directory of the cluster's data")
}

// layoutOf returns the layout of a command's data directory.
func layoutOf(cmd *cobra.Command) (datadir.Layout, error) {
	path, err := cmd.Flags().GetString(dataDirFlag)
	if err != nil {
		return datadir.Layout{}, err
	}
	return newLayout(path)
}

func newLayout(path string) (datadir.Layout, error) {
	layout, err := datadir.New(path)
	if err != nil {
		return layout, usageError{err}
	}
	return layout, nil
}

// running returns the cluster that runs in a data directory, or an error if none does.
func running(layout datadir.Layout) (datadir.Instance, error) {
	var none datadir.Instance
	if err := layout.Check(); err != nil && !errors.Is(err, datadir.ErrEmpty) {
		return none, err
	}
	pid, err := layout.Holder()
	if err != nil {
		return none, err
	}
	if pid == 0 {
		return none, fmt.Errorf("no cluster runs in %s; start it with \"kindred up\" or name another with --data-dir", layout.Root)
	}
	instance, found, err := layout.ReadInstance()
	if err != nil {
		return none, err
	}
	if !found || instance.PID != pid {
		return none, fmt.Errorf("the cluster in %s is still starting (process %d); try again in a moment", layout.Root, pid)
	}
	return instance, nil
}
