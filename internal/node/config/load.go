// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// kind is the kind of the object in a configuration file.
const kind = "KubeletConfiguration"

// Load reads a configuration file, as kubelet's flag --config names one: YAML or JSON. A field that does not exist, or that
// has a value that is not valid, is an error.
func Load(path string) (*Configuration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the kubelet configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse is Load for the content of a file.
func Parse(text []byte) (*Configuration, error) {
	c := &Configuration{}
	if err := yaml.UnmarshalStrict(text, &c.KubeletConfiguration); err != nil {
		return nil, readable(err)
	}
	if want := kubeletv1beta1.SchemeGroupVersion.String(); c.APIVersion != want || c.Kind != kind {
		return nil, fmt.Errorf("apiVersion and kind are %q and %q, want %q and %q", c.APIVersion, c.Kind, want, kind)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, readable(err)
	}
	c.Ignored, c.set = ignored(fields), map[string]bool{}
	for name := range fields {
		c.set[name] = true
	}
	setDefaults(&c.KubeletConfiguration)
	return c, validate(&c.KubeletConfiguration)
}

// readable removes the names of the packages that decode YAML from an error.
func readable(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error unmarshaling JSON: ", "error converting YAML to JSON: ", "while decoding JSON: ", "json: ", "yaml: "} {
		text = strings.Replace(text, prefix, "", 1)
	}
	return errors.New(text)
}

// ignored returns a line for each of a file's fields that has no effect.
func ignored(fields map[string]any) []string {
	var lines []string
	for name := range fields {
		if reason, ok := withoutEffect[name]; ok {
			lines = append(lines, fmt.Sprintf("kubelet configuration: %s has no effect: %s", name, reason))
		}
	}
	slices.Sort(lines)
	return lines
}
