// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// kind is the kind of the object in a configuration file.
const kind = "KubeletConfiguration"

// Load reads a configuration file, as kubelet's flag --config names one: YAML or JSON. The files of a drop-in directory
// (--config-dir), if it is not empty, are merged over it. A field that does not exist, or that has a value that is not valid, is
// an error. path may be empty if dir is not.
func Load(path, dir string) (*Configuration, error) {
	var text []byte
	var err error
	if path != "" {
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("read the kubelet configuration: %w", err)
		}
	}
	source := path
	if dir != "" {
		source = strings.TrimPrefix(path+", with "+dir, ", with ")
		text, err = merge(text, dir)
	}
	var c *Configuration
	if err == nil {
		c, err = Parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration %s: %w", source, err)
	}
	if c.StaticPodPath != "" && !filepath.IsAbs(c.StaticPodPath) { // relative to the file, as in kubelets
		if path, err = filepath.Abs(path); err != nil {
			return nil, fmt.Errorf("kubelet configuration: %w", err)
		}
		c.StaticPodPath = filepath.Join(filepath.Dir(path), c.StaticPodPath)
	}
	return c, nil
}

// Parse is Load for the content of a file.
func Parse(text []byte) (*Configuration, error) {
	c := &Configuration{}
	if err := decode(text, &c.KubeletConfiguration); err != nil {
		return nil, err
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
	if len(c.TLSCipherSuites) > 0 && c.TLSMinVersion == "VersionTLS13" {
		c.Ignored = append(c.Ignored, noEffect("tlsCipherSuites", "the cipher suites of TLS 1.3 cannot be configured"))
	}
	return c, validate(&c.KubeletConfiguration)
}

// decode reads the fields of a file.
func decode(text []byte, c *kubeletv1beta1.KubeletConfiguration) error {
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return readable(err)
	}
	if want := kubeletv1beta1.SchemeGroupVersion.String(); c.APIVersion != want || c.Kind != kind {
		return fmt.Errorf("apiVersion and kind are %q and %q, want %q and %q", c.APIVersion, c.Kind, want, kind)
	}
	return nil
}

// readable removes the names of the packages that decode YAML from an error.
func readable(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error unmarshaling JSON: ", "error converting YAML to JSON: ", "while decoding JSON: ", "json: ", "yaml: "} {
		text = strings.Replace(text, prefix, "", 1)
	}
	return errors.New(text)
}

// ignored returns a line for each of a file's fields whose value has no effect.
func ignored(fields map[string]any) []string {
	var lines []string
	for name, value := range fields {
		f, ok := withoutEffect[name]
		switch {
		case !ok || reflect.DeepEqual(value, f.asUpstream):
			continue
		case isEmpty(value) && (value != false || f.asUpstream != true): // false is not the default then
			continue
		}
		lines = append(lines, noEffect(name, f.reason))
	}
	slices.Sort(lines)
	return lines
}

// noEffect returns the line about a field that has no effect.
func noEffect(field, reason string) string {
	return fmt.Sprintf("kubelet configuration: %s has no effect: %s", field, reason)
}

// isEmpty reports whether a value means the default, as tools write it out: null, "", 0, "0", false, "0s", or an object or list of
// such values.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(one any) bool { return !isEmpty(one) })
	case []any:
		return !slices.ContainsFunc(v, func(one any) bool { return !isEmpty(one) })
	case string:
		return v == "" || v == "0" || v == "0s"
	}
	return reflect.ValueOf(value).IsZero()
}
