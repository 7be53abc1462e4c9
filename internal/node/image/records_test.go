// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const private = "registry.example/app:1"

// secret is a credential that pulled an image.
var secret = &credential{auth: &runtimeapi.AuthConfig{}, secret: "ns/keys", hash: "h"}

// expect checks whether a pod without credentials may use an image.
func (r *records) expect(t *testing.T, ref string, want bool) {
	t.Helper()
	if allowed, _ := r.allows(private, ref, nil); allowed != want {
		t.Errorf("every pod may use image %s: %t, want %t", ref, allowed, want)
	}
}

// TestPrune: the record of an image goes after the image, and only then.
func TestPrune(t *testing.T) {
	r := &records{dir: t.TempDir()}
	for _, ref := range []string{"sha256:kept", "sha256:removed"} {
		done, err := r.begin(private, secret)
		if err != nil {
			t.Fatal(err)
		}
		done(ref)
		r.expect(t, ref, false)
	}
	if err := r.prune(func() ([]string, error) { return nil, errors.New("no runtime") }); err == nil {
		t.Error("records are pruned without a list of images")
	}
	r.expect(t, "sha256:removed", false)
	if err := r.prune(func() ([]string, error) { return []string{"sha256:kept"}, nil }); err != nil {
		t.Fatal(err)
	}
	r.expect(t, "sha256:kept", false)
	r.expect(t, "sha256:removed", true) // an image loaded by hand since then
}

// TestPruneDuringPull: an image that is pulled again after the list was read keeps its record.
func TestPruneDuringPull(t *testing.T) {
	r := &records{dir: t.TempDir()}
	if err := r.grant(private, "sha256:again", secret); err != nil {
		t.Fatal(err)
	}
	done, err := r.begin(private, secret)
	if err != nil {
		t.Fatal(err)
	}
	err = r.prune(func() ([]string, error) {
		done("sha256:again") // the record has these credentials already
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.expect(t, "sha256:again", false)
}

func TestFullName(t *testing.T) {
	const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for name, want := range map[string]string{
		"busybox":                   "docker.io/library/busybox:latest",
		"me/app:1":                  "docker.io/me/app:1",
		"registry.example:5000/app": "registry.example:5000/app:latest",
		"app@" + digest:             "docker.io/library/app@" + digest,
		"app:1@" + digest:           "docker.io/library/app@" + digest,
		"not a name":                "",
		"":                          "",
	} {
		if got := FullName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
