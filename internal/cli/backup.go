// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/backup"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
	"github.com/kindred-project/kindred/internal/storage"
)

func newBackup(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all objects and the keys of a running cluster to a file",
		Long: `Write a backup of the running cluster in the data directory to a file: a snapshot of its
store, with all objects and Secrets, and its keys. It does not have the data of volumes.
Anyone who can read the file is an administrator of the cluster.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			return backUp(cmd, layout, version, args[0])
		},
	}
}

func backUp(cmd *cobra.Command, layout datadir.Layout, version, file string) error {
	if _, err := running(layout); err != nil {
		return err
	}
	keys, err := pki.Shared(layout.PKI())
	if err != nil {
		return fmt.Errorf("the keys of the cluster: %w", err)
	}
	authority, err := cert.ParseCertsPEM(keys["ca.crt"])
	if err != nil {
		return fmt.Errorf("the cluster's authority: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".kindred-backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := backup.Backup{
		Description: backup.Description{Version: version, Time: clock.RealClock{}.Now().UTC().Truncate(time.Second), Authority: join.HashOf(authority[0])},
		Keys:        keys, Store: filepath.Join(dir, "snapshot"),
	}
	if err := takeSnapshot(cmd.Context(), layout, b.Store); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	objects, err := storage.CheckSnapshot(b.Store)
	if err != nil {
		return err
	}
	if err := b.Write(file); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	printf(cmd, "%d keys of the store and the keys of the cluster are in %s (%s): anyone who can read it is an administrator of the cluster\n",
		objects, file, resource.NewQuantity(info.Size(), resource.BinarySI))
	return nil
}

// takeSnapshot writes a snapshot of the store of a running cluster to a file.
func takeSnapshot(ctx context.Context, layout datadir.Layout, file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", layout.Kubeconfig())
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", layout.Kubeconfig(), err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+backup.SnapshotPath, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(why))
	}
	to, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, response.Body)
	return errors.Join(err, to.Close())
}

func newRestore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the cluster of a backup",
		Long: `Restore the objects and keys of a backup to the data directory, whose cluster must not
run and must have no store. What else is there stays, such as the directories of volumes.
Then start it with "kindred up", and the flags that it had.

Objects are as they were at the time of the backup: what was created later is not known
any more. Other servers of the cluster have a store of their own: reset them, and let
them join again. Nodes stay.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			return restore(cmd, layout, args[0])
		},
	}
}

func restore(cmd *cobra.Command, layout datadir.Layout, file string) error {
	lock, err := layout.Lock()
	if err != nil {
		return err
	}
	defer lock.Release()
	if _, err := os.Stat(layout.Etcd()); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("there is a store in %s: move it away first, or use another --data-dir; nothing was changed", layout.Etcd()))
	}
	dir, err := os.MkdirTemp(layout.Root, "restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := backup.Read(file, dir)
	if err != nil {
		return err
	}
	restored := filepath.Join(dir, "etcd")
	if err := storage.Restore(restored, b.Store); err != nil {
		return err
	}
	if err := restoreKeys(layout, b.Keys); err != nil {
		return err
	}
	if err := os.Rename(restored, layout.Etcd()); err != nil {
		return err
	}
	printf(cmd, "the cluster is as it was on %s; start it with \"kindred up\"\n", b.Time.Format(time.RFC3339))
	return nil
}

// restoreKeys writes the keys of a cluster, unless they are there.
func restoreKeys(layout datadir.Layout, keys map[string][]byte) error {
	known, err := pki.Exists(layout.PKI())
	if err != nil {
		return err
	}
	if !known {
		return pki.Adopt(layout.PKI(), keys)
	}
	own, err := pki.Shared(layout.PKI())
	if err != nil {
		return err
	}
	if !bytes.Equal(own["ca.crt"], keys["ca.crt"]) {
		return fmt.Errorf("the keys in %s are those of another cluster: use another --data-dir; nothing was changed", layout.PKI())
	}
	return nil
}
