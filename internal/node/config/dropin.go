// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// extension is that of the files in a drop-in directory. Other files there are not read.
const extension = ".conf"

// merge returns text, which may be empty, with the files of a drop-in directory and of the directories in it merged over it, in
// the order of their paths. As kubelets do it: objects are merged, and lists replaced.
func merge(text []byte, dir string) ([]byte, error) {
	if len(text) == 0 {
		text = fmt.Appendf(nil, "{apiVersion: %s, kind: %s}", kubeletv1beta1.SchemeGroupVersion, kind)
	}
	merged, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, readable(err)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != extension {
			return err
		}
		patch, err := readDropIn(path)
		if err == nil {
			merged, err = jsonpatch.MergePatch(merged, patch)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	return merged, err
}

// readDropIn returns the JSON of a file in a drop-in directory, which must be valid by itself.
func readDropIn(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c kubeletv1beta1.KubeletConfiguration
	if err := decode(text, &c); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text)
}

// Text returns the configuration as YAML for the log, without the secrets that headers may be.
func (c *Configuration) Text() (string, error) {
	shown := c.DeepCopy()
	for header := range shown.StaticPodURLHeader {
		shown.StaticPodURLHeader[header] = []string{"<masked>"}
	}
	text, err := yaml.Marshal(shown)
	return string(text), err
}
