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

// profileSeconds is how long the server profiles itself, from the moment that
// the measured time begins: about as long as the figures take. What is idle at
// the end adds nothing to a CPU profile.
const profileSeconds = 5

// profiled runs what is measured and, if a profile was asked for, has the server
// profile itself meanwhile.
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

// profile has the server write the profile of that name, one of net/http/pprof's.
func (c *cluster) profile(ctx context.Context, name, path string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", c.pprof, name, profileSeconds)
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
