// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"
)

// isProfiled reports whether a profile was requested.
func (b *bench) isProfiled() bool {
	for _, file := range b.profiles {
		if file != "" {
			return true
		}
	}
	return false
}

// profiled runs a measurement and, if a profile was requested, lets the server profile itself
// meanwhile.
func (c *cluster) profiled(ctx context.Context, measured func() error) error {
	if c.pprof == "" {
		return measured()
	}
	var profiles errgroup.Group
	for name, file := range c.bench.profiles {
		if file != "" {
			profiles.Go(func() error { return c.profile(ctx, name, file) })
		}
	}
	if err := measured(); err != nil {
		return err
	}
	if err := profiles.Wait(); err != nil {
		return fmt.Errorf("profile the server: %w", err)
	}
	return nil
}

// profile makes the server write a profile of net/http/pprof.
func (c *cluster) profile(ctx context.Context, name, path string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", c.pprof, name, c.bench.profileSeconds)
	if name == "heap" {
		url = fmt.Sprintf("http://%s/debug/pprof/heap?gc=1", c.pprof) // what is held, not what changes in that time
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
