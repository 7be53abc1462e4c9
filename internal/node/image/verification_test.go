// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// TestVerification: which present images a pod without credentials may use: a preloaded one, and one that another pod has
// pulled with a secret.
func TestVerification(t *testing.T) {
	const never, preloaded, allowlisted, always = kubeletv1beta1.NeverVerify, kubeletv1beta1.NeverVerifyPreloadedImages,
		kubeletv1beta1.NeverVerifyAllowlistedImages, kubeletv1beta1.AlwaysVerify
	for _, tc := range []struct {
		policy               kubeletv1beta1.ImagePullCredentialsVerificationPolicy
		allowlist            []string
		ofPreloaded, ofOther bool
	}{
		{never, nil, true, true},
		{preloaded, nil, true, false},
		{always, nil, false, false},
		{allowlisted, nil, false, false},
		{allowlisted, []string{"registry.test/app"}, true, true},
		{allowlisted, []string{"registry.test/*"}, true, true},
		{allowlisted, []string{"other.test/app", "registry.test/ap", "registry.test/app/*", "app"}, false, false},
	} {
		f := newFixture(t)
		f.secrets["keys"] = pullSecret("keys", "1", "right")
		f.registry.password = "right"
		var err error
		if f.options.Verification, err = NewVerification(tc.policy, tc.allowlist); err != nil {
			t.Fatal(err)
		}
		f.Manager = New(t.Context(), f.options)
		f.registry.present[name] = &runtimeapi.Image{Id: "id"}
		if _, failure := f.ensure(podOf("p", name, v1.PullNever)); (failure == nil) != tc.ofPreloaded {
			t.Errorf("%s %v: a preloaded image may be used: %t (%v)", tc.policy, tc.allowlist, failure == nil, failure)
		}
		delete(f.registry.present, name)
		if _, failure := f.ensure(podOf("owner", name, v1.PullIfNotPresent, "keys")); failure != nil {
			t.Fatal(failure)
		}
		if _, failure := f.ensure(podOf("p", name, v1.PullNever)); (failure == nil) != tc.ofOther {
			t.Errorf("%s %v: an image of another pod may be used: %t (%v)", tc.policy, tc.allowlist, failure == nil, failure)
		}
		if _, failure := f.ensure(podOf("again", name, v1.PullNever, "keys")); failure != nil {
			t.Errorf("%s %v: the pod with the secret: %v", tc.policy, tc.allowlist, failure)
		}
	}
}

func TestNewVerificationErrors(t *testing.T) {
	for _, tc := range []struct {
		policy  kubeletv1beta1.ImagePullCredentialsVerificationPolicy
		pattern string
		want    string
	}{
		{"Verify", "", `imagePullCredentialsVerificationPolicy is "Verify", and must be`},
		{kubeletv1beta1.AlwaysVerify, "app", "needs imagePullCredentialsVerificationPolicy to be NeverVerifyAllowlistedImages"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, "app:1", `preloadedImagesVerificationAllowlist has "app:1", and must have names`},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, " app", `" app"`},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, "app*", `"app*"`},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, "/*", `"/*"`},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, "*/app/*", `"*/app/*"`},
	} {
		var allowlist []string
		if tc.pattern != "" {
			allowlist = []string{tc.pattern}
		}
		if _, err := NewVerification(tc.policy, allowlist); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s, %q: %v, want %s", tc.policy, tc.pattern, err, tc.want)
		}
	}
}
