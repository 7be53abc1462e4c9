// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/term"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/storage"
	"github.com/kindred-project/kindred/internal/storage/check"
)

// storeCheck has the flags of "kindred check-store".
type storeCheck struct {
	output    string
	drop, yes bool
}

func newCheckStore() *cobra.Command {
	var s storeCheck
	cmd := &cobra.Command{
		Use:   "check-store",
		Short: "Find damage in the files of a stopped cluster's store",
		Long: `Reads the write-ahead log and the database of the embedded etcd, compares them with each
other and with the checksums of the last stop, and decodes each object. It changes nothing.
The cluster must not be running.

With --drop-damaged it lists the objects that are damaged or can't be decoded, asks
for confirmation, and removes them and all past versions of objects. It ignores finalizers of
removed objects, as upstream's unsafe deletion of malformed objects does (KEP-3926). If more than
single objects is damaged, the store can only be restored from a backup.

The exit status is 0 if the store is fine, 1 if it is damaged, and 2 if the check failed.`,
		Example: `  kindred check-store
  kindred check-store -o json
  kindred check-store --drop-damaged`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := s.run(cmd)
			var own exitStatus
			var usage usageError
			if err == nil || errors.As(err, &own) || errors.As(err, &usage) {
				return err
			}
			return exitStatus{exitFailure, err}
		},
	}
	addOutputFlag(cmd, &s.output)
	cmd.Flags().BoolVar(&s.drop, "drop-damaged", false, "remove the objects that are damaged, and all past versions")
	cmd.Flags().BoolVarP(&s.yes, "yes", "y", false, "with --drop-damaged: do not ask")
	return cmd
}

func (s *storeCheck) run(cmd *cobra.Command) error {
	asJSON, err := wantsJSON(s.output)
	if err != nil {
		return err
	}
	switch {
	case s.yes && !s.drop:
		return usagef("--yes needs --drop-damaged")
	case asJSON && s.drop:
		return usagef("--output json cannot be used with --drop-damaged")
	case s.drop && !s.yes && !term.IsTerminal(cmd.InOrStdin()):
		return usagef("cannot ask for confirmation without a terminal: use --yes to remove objects")
	}
	layout, err := layoutOf(cmd)
	if err != nil {
		return err
	}
	if s.drop {
		// Keep other processes from starting a cluster meanwhile.
		lock, err := layout.Lock()
		if err != nil {
			return err
		}
		defer func() { _ = lock.Release() }()
	}
	report, err := checkStore(cmd, layout, s.drop)
	if err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(cmd, report); err != nil {
			return err
		}
	} else {
		printStoreReport(cmd, layout, report)
	}
	switch {
	case len(report.Damage) == 0:
		return nil
	case s.drop:
		return s.dropDamaged(cmd, layout, report)
	}
	return exitStatus{code: exitFound}
}

// checkStore checks the store of a data directory that no cluster uses.
func checkStore(cmd *cobra.Command, layout datadir.Layout, locked bool) (*check.Report, error) {
	if err := layout.Check(); err != nil {
		return nil, err
	}
	if !locked {
		if err := unused(layout); err != nil {
			return nil, err
		}
	}
	instance, ran, err := layout.ReadInstance()
	if err != nil {
		return nil, err
	}
	if ran && len(instance.Etcd) > 0 {
		return nil, fmt.Errorf("the cluster in %s uses an external etcd (%s): check it with etcdutl", layout.Root, instance.Etcd[0])
	}
	there, err := check.Exists(layout.Etcd())
	if err != nil {
		return nil, err
	}
	if !there {
		report := &check.Report{Damage: []check.Damage{}}
		if ran {
			report.Damage = append(report.Damage, check.Damage{File: layout.Etcd(), Problem: "the store is missing"})
		}
		return report, nil
	}
	report, err := check.Store(cmd.Context(), layout.Etcd(), true)
	if err == nil && !locked {
		// The writes of a cluster that was started meanwhile are not damage.
		err = unused(layout)
	}
	return report, err
}

// unused returns an error if a cluster runs in a data directory.
func unused(layout datadir.Layout) error {
	pid, err := layout.Holder()
	if err == nil && pid != 0 {
		err = &datadir.HeldError{Root: layout.Root, PID: pid}
	}
	return err
}

func printStoreReport(cmd *cobra.Command, layout datadir.Layout, report *check.Report) {
	for _, d := range report.Damage {
		printf(cmd, "%s\n", d)
	}
	for _, note := range report.Notes {
		printf(cmd, "note: %s\n", note)
	}
	if len(report.Damage) > 0 && report.Droppable() {
		printf(cmd, "restore %s from a backup, or drop the damaged objects with \"kindred check-store --drop-damaged\"\n", layout.Etcd())
		return
	}
	if len(report.Damage) > 0 {
		printf(cmd, "restore %s from a backup\n", layout.Etcd())
		return
	}
	printf(cmd, "%s is fine: %d objects and %d versions of keys, the newest of revision %d", layout.Etcd(), report.Objects, report.Revisions, report.Newest)
	if report.Encrypted > 0 {
		printf(cmd, "; %d objects are encrypted and were not decoded", report.Encrypted)
	}
	if !report.Clean {
		printf(cmd, "; there was no clean stop, so not everything has a checksum")
	}
	printf(cmd, "\n")
}

// dropDamaged removes the objects that the report names, and checks again.
func (s *storeCheck) dropDamaged(cmd *cobra.Command, layout datadir.Layout, report *check.Report) error {
	if !report.Droppable() {
		return exitStatus{exitFound, errors.New("nothing was removed: not only objects are damaged")}
	}
	if !s.yes && !confirmed(cmd, "\nRemove these objects, and all past versions of objects") {
		return exitStatus{exitFound, errors.New("nothing was removed")}
	}
	if err := storage.DropDamaged(cmd.Context(), layout.Etcd(), clock.RealClock{}, report); err != nil {
		return err
	}
	after, err := check.Store(cmd.Context(), layout.Etcd(), true)
	if err != nil {
		return err
	}
	if len(after.Damage) > 0 {
		return exitStatus{exitFound, &check.Error{Dir: layout.Etcd(), Report: after}}
	}
	printf(cmd, "removed %d; %s is fine now\n", len(report.Damage), layout.Etcd())
	return nil
}
