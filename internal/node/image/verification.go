// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Verification decides for which present images a pod must have credentials that pulled the image before, or pull
// it again (KEP-2535). The zero value is the policy NeverVerifyPreloadedImages.
type Verification struct {
	policy kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	// allowlist has names of images without tag and digest, and prefixes of names, which end in a slash.
	allowlist []string
}

// NewVerification returns the verification that the fields imagePullCredentialsVerificationPolicy and
// preloadedImagesVerificationAllowlist of a KubeletConfiguration ask for.
func NewVerification(policy kubeletv1beta1.ImagePullCredentialsVerificationPolicy, allowlist []string) (Verification, error) {
	v := Verification{policy: policy}
	switch policy {
	case kubeletv1beta1.NeverVerify, kubeletv1beta1.NeverVerifyPreloadedImages, kubeletv1beta1.NeverVerifyAllowlistedImages, kubeletv1beta1.AlwaysVerify:
	default:
		return v, fmt.Errorf("imagePullCredentialsVerificationPolicy is %q, and must be %s, %s, %s or %s", policy, kubeletv1beta1.NeverVerify,
			kubeletv1beta1.NeverVerifyPreloadedImages, kubeletv1beta1.NeverVerifyAllowlistedImages, kubeletv1beta1.AlwaysVerify)
	}
	if len(allowlist) > 0 && policy != kubeletv1beta1.NeverVerifyAllowlistedImages {
		return v, fmt.Errorf("preloadedImagesVerificationAllowlist needs imagePullCredentialsVerificationPolicy to be %s",
			kubeletv1beta1.NeverVerifyAllowlistedImages)
	}
	for _, pattern := range allowlist {
		if err := checkPattern(pattern); err != nil {
			return v, fmt.Errorf("preloadedImagesVerificationAllowlist has %q, %w", pattern, err)
		}
		v.allowlist = append(v.allowlist, strings.TrimSuffix(pattern, "*"))
	}
	return v, nil
}

func checkPattern(pattern string) error {
	if prefix, ok := strings.CutSuffix(pattern, "/*"); ok && prefix != "" && !strings.ContainsAny(prefix, "* ") {
		return nil
	}
	if name, err := nameOnly(pattern); err != nil || name != pattern {
		return fmt.Errorf("and must have names of images without tag and digest, or such a name's first parts and /*")
	}
	return nil
}

// required reports whether a pod must have credentials for a present image. The image's name is without tag and
// digest; byAgent tells whether this agent has pulled the image.
func (v Verification) required(name string, byAgent bool) bool {
	switch v.policy {
	case kubeletv1beta1.NeverVerify:
		return false
	case kubeletv1beta1.AlwaysVerify:
		return true
	case kubeletv1beta1.NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(v.allowlist, func(allowed string) bool {
			return name == allowed || strings.HasSuffix(allowed, "/") && strings.HasPrefix(name, allowed)
		})
	default:
		return byAgent
	}
}
