// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// coreModule is Cluster API, whose core a release contains as it is, with an image of its own.
const coreModule = "sigs.k8s.io/cluster-api"

// module is a Go module in the cache of modules.
type module struct{ Version, Dir string }

// findCore returns the module of Cluster API that this module requires.
func findCore() (m module, err error) {
	out, err := output(exec.Command("go", "list", "-m", "-json", coreModule))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return m, err
	}
	if m.Dir == "" {
		return m, fmt.Errorf("the module %s has not been downloaded", coreModule)
	}
	return m, nil
}

// writeCore writes Cluster API's core as upstream's release has it, and the definition of clusterctl's inventory.
func (r release) writeCore(clusterctl *strings.Builder) error {
	m, err := findCore()
	if err != nil {
		return err
	}
	kustomized, err := output(exec.Command(r.kindred, "kubectl", "kustomize", filepath.Join(m.Dir, "core", "config", "default")))
	if err != nil {
		return err
	}
	tag := r.coreImage + ":" + m.Version
	components, err := coreComponents(kustomized, tag)
	if err != nil {
		return err
	}
	metadata, err := os.ReadFile(filepath.Join(m.Dir, "metadata.yaml"))
	if err != nil {
		return err
	}
	inventory, err := os.ReadFile(filepath.Join(m.Dir, "cmd", "clusterctl", "config", "manifest", "clusterctl-api.yaml"))
	if err != nil {
		return err
	}
	dir := filepath.Join(r.out, "cluster-api", m.Version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file, content := range map[string][]byte{
		filepath.Join(dir, "core-components.yaml"):  components,
		filepath.Join(dir, "metadata.yaml"):         metadata,
		filepath.Join(r.out, "clusterctl-api.yaml"): inventory,
	} {
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	if err := addTo(clusterctl, "cluster-api", "CoreProvider", filepath.Join(dir, "core-components.yaml")); err != nil {
		return err
	}
	return writeImage(filepath.Join(r.out, "core.tar"), tag, map[string]string{"manager": r.core})
}

// Clusters from a ClusterClass are possible unless the user decides otherwise: the providers have one.
const topologyOff, topologyOn = "${CLUSTER_TOPOLOGY:=false}", "${CLUSTER_TOPOLOGY:=true}"

// coreComponents returns the objects of the core with the image of its manager, which may have been loaded.
func coreComponents(kustomized, tag string) ([]byte, error) {
	if !strings.Contains(kustomized, topologyOff) {
		return nil, fmt.Errorf("the core has no variable %s", topologyOff)
	}
	var out bytes.Buffer
	images := 0
	for document := range strings.SplitSeq(strings.ReplaceAll(kustomized, topologyOff, topologyOn), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return nil, err
		}
		if o.GetKind() == "Deployment" && useImage(o, tag) {
			images++
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	if images != 1 {
		return nil, fmt.Errorf("%d Deployments have a container \"manager\", and not one", images)
	}
	return out.Bytes(), nil
}

// useImage sets the image of a Deployment's manager, if it has one.
func useImage(o *unstructured.Unstructured, tag string) bool {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, _ := unstructured.NestedSlice(o.Object, path...)
	i := slices.IndexFunc(containers, func(c any) bool { return c.(map[string]any)["name"] == "manager" })
	if i < 0 {
		return false
	}
	manager := containers[i].(map[string]any)
	manager["image"], manager["imagePullPolicy"] = tag, "IfNotPresent"
	_ = unstructured.SetNestedSlice(o.Object, containers, path...)
	return true
}

// output runs a program and returns what it prints. An error has what it printed as errors.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return string(out), nil
}
