// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// New content is offered. Refused content is offered again, accepted content is not.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	offered := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Follow(ctx, path, []byte("zeroth"), func(content []byte) error {
			offered <- string(content)
			if string(content) == "wrong" {
				return errors.New("that is wrong")
			}
			return nil
		})
	}()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-offered:
			if got != want {
				t.Fatalf("offered %q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%q is not offered", want)
		}
	}
	next("first") // it changed before Follow was called
	write("wrong")
	next("wrong")
	write("wrong")
	next("wrong")
	write("right")
	for got := ""; got != "right"; { // a rename may be seen twice
		select {
		case got = <-offered:
		case <-time.After(10 * time.Second):
			t.Fatal("the valid content was not offered")
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Follow did not return")
	}
}
