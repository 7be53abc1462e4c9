// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"
)

const private = "registry.example/app:1"

// secret is a credential that pulled an image.
var secret = &credential{auth: &runtimeapi.AuthConfig{}, source: kubeletv1beta1.ImagePullSecret{Namespace: "ns", Name: "keys", CredentialHash: "h"}}

func newRecords(t *testing.T) *records {
	return &records{dir: t.TempDir(), clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
}

// expect checks whether a pod without credentials may use an image.
func (r *records) expect(t *testing.T, ref string, want bool) {
	t.Helper()
	if allowed, _ := r.allows(private, ref, nil); allowed != want {
		t.Errorf("every pod may use image %s: %t, want %t", ref, allowed, want)
	}
}

// TestPrune: the record of an image goes after the image, and only then.
func TestPrune(t *testing.T) {
	r := newRecords(t)
	for _, ref := range []string{"sha256:kept", "sha256:removed"} {
		done, err := r.begin(private, secret)
		if err != nil {
			t.Fatal(err)
		}
		done(ref)
		r.expect(t, ref, false)
	}
	foreign := filepath.Join(r.dir, pulledDir, "of-somebody")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
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
	expectFile(t, foreign, "")
}

// TestPruneDuringPull: an image that is pulled again after the list was read keeps its record.
func TestPruneDuringPull(t *testing.T) {
	r := newRecords(t)
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

// TestFiles: the files are those of a kubelet, which may be replaced, and the other way round.
func TestFiles(t *testing.T) {
	r := newRecords(t)
	done, err := r.begin(private, secret)
	if err != nil {
		t.Fatal(err)
	}
	expectFile(t, r.dir+"/pulling/sha256-44026dc25579621c90d4ca974081985b6ef1ff7a58eb059c31ccd8368c6f55f3",
		`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"registry.example/app:1"}`)
	done("sha256:id")
	expectFile(t, r.dir+"/pulled/sha256-5760e13aa509d80974c444f7d3edc6281937fa6f88dc52d360220d932047c758", `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"1970-01-01T00:00:00Z","imageRef":"sha256:id",`+
		`"credentialMapping":{"registry.example/app":{"kubernetesSecrets":[{"uid":"","namespace":"ns","name":"keys","credentialHash":"h"}]}}}`)
}

func expectFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s has %s, %v; want %s", path, got, err, want)
	}
}

func TestNameOnly(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for image, want := range map[string]string{
		"app": "app", "app:1": "app", "app:1" + digest: "app", "app" + digest: "app",
		"registry.example:5000/app": "registry.example:5000/app", "registry.example:5000/app:1": "registry.example:5000/app",
	} {
		if got, err := nameOnly(image); got != want || err != nil {
			t.Errorf("the name of %s is %q, %v; want %s", image, got, err, want)
		}
	}
}
