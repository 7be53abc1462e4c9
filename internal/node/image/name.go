// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// withTag adds the tag "latest" to a name without tag and digest. It does not normalize the name: the
// runtime resolves short names.
func withTag(image string) (string, error) {
	named, err := parse(image)
	if err != nil {
		return "", err
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}

// repository returns the image's full name without tag and digest.
func repository(image string) (string, error) {
	named, err := parse(image)
	if err != nil {
		return "", err
	}
	return named.Name(), nil
}

// nameOnly returns the image's name without tag and digest, and otherwise as it was written.
func nameOnly(image string) (string, error) {
	named, err := parse(image)
	if err != nil {
		return "", err
	}
	if d, ok := named.(reference.Digested); ok {
		image = strings.TrimSuffix(image, "@"+d.Digest().String())
	}
	if t, ok := named.(reference.Tagged); ok {
		image = strings.TrimSuffix(image, ":"+t.Tag())
	}
	return image, nil
}

// FullName returns the name that runtimes list for an image: with its registry and with a tag or a digest, or "" if the
// name is not valid. Of a name with both, the digest counts.
func FullName(image string) string {
	named, err := parse(image)
	if err != nil {
		return ""
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return reference.TagNameOnly(named).String()
	}
	return reference.TrimNamed(named).Name() + "@" + digested.Digest().String()
}

func parse(image string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return named, nil
}
