// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// undelete measures how long "kindred undelete" takes to restore an owner with its dependents, and
// prints the time of a dry run and the cost for the server.
func undelete(dependents int) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		c, client, err := b.startWithClient(ctx, simulatedNode...)
		if err != nil {
			return 0, err
		}
		defer c.stop()
		configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
		owner, err := plant(ctx, configMaps, dependents, 1)
		if err != nil {
			return 0, err
		}
		if _, err := fell(ctx, configMaps, owner, background, dependents); err != nil {
			return 0, err
		}
		pause(ctx, settling)
		if _, err := c.costly(dependents, "undelete", "--dry-run", "configmap/"+owner.Name); err != nil {
			return 0, err
		}
		var took time.Duration
		err = c.profiled(ctx, func() (err error) {
			took, err = c.costly(dependents, "undelete", "configmap/"+owner.Name)
			return err
		})
		if err != nil {
			return 0, err
		}
		back, err := configMaps.List(ctx, metav1.ListOptions{LabelSelector: dependentLabel})
		if err == nil && len(back.Items) != dependents {
			err = fmt.Errorf("%d of %d dependents are back", len(back.Items), dependents)
		}
		return took.Seconds(), err
	}
}

// undeleteList measures the list of deletions that were requested.
func undeleteList(ctx context.Context, b *bench) (float64, error) {
	c, client, err := b.startWithClient(ctx, simulatedNode...)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if _, err := plant(ctx, configMaps, dependents, 1); err != nil {
		return 0, err
	}
	if err := configMaps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: dependentLabel}); err != nil {
		return 0, err
	}
	pause(ctx, settling)
	var took time.Duration
	err = c.profiled(ctx, func() (err error) {
		took, err = c.costly(dependents, "undelete", "--list")
		return err
	})
	return took.Seconds(), err
}

// costly runs a verb and returns its cost for the server: CPU time and peak memory.
func (c *cluster) costly(objects int, args ...string) (time.Duration, error) {
	before, err := c.peak()
	if err != nil {
		return 0, err
	}
	processor, began := c.processorTime(), time.Now()
	if out, err := c.run(args...); err != nil {
		return 0, fmt.Errorf("kindred %v: %w: %s", args, err, out)
	}
	took, used := time.Since(began), c.processorTime()-processor
	after, err := c.peak()
	fmt.Printf("  kindred %v: %.2f s; of the server's processor time %.2f s, %v an object; peak of memory before %.0f MB, then %.0f MB\n",
		args, took.Seconds(), used.Seconds(), (used / time.Duration(objects)).Round(time.Microsecond), before, after)
	return took, err
}

// peak returns the peak resident memory of the process since the last call, in MB.
func (c *cluster) peak() (float64, error) {
	peak, err := c.memory("VmHWM:")
	if err != nil {
		return 0, err
	}
	// Reset the peak (proc_pid_clear_refs(5)).
	return peak, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.cmd.Process.Pid), []byte("5"), 0o600)
}
