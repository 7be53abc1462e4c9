// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
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
	written := make(chan error, 1)
	go func() { written <- c.profile(ctx) }()
	if err := measured(); err != nil {
		return err
	}
	if err := <-written; err != nil {
		return fmt.Errorf("profile the server: %w", err)
	}
	return nil
}

func (c *cluster) profile(ctx context.Context) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", c.pprof, profileSeconds)
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
	file, err := os.Create(c.bench.cpuProfile)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
