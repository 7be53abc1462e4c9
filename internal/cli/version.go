// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"runtime"

	"github.com/spf13/cobra"
	etcd "go.etcd.io/etcd/api/v3/version"
	kubernetes "k8s.io/component-base/version"
)

// versions has the versions of the program and of its main libraries.
type versions struct {
	Kindred    string `json:"kindred"`
	Kubernetes string `json:"kubernetes"`
	Etcd       string `json:"etcd"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func newVersion(version string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{
				Kindred:    version,
				Kubernetes: kubernetes.Get().GitVersion,
				Etcd:       "v" + etcd.Version,
				Go:         runtime.Version(),
				Platform:   runtime.GOOS + "/" + runtime.GOARCH,
			}
			if asJSON, err := wantsJSON(output); err != nil {
				return err
			} else if asJSON {
				return printJSON(cmd, v)
			}
			printf(cmd, "kindred %s (Kubernetes %s, etcd %s, %s, %s)\n", v.Kindred, v.Kubernetes, v.Etcd, v.Go, v.Platform)
			return nil
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", `"json"`)
}

// wantsJSON reports whether the value of --output selects JSON.
func wantsJSON(output string) (bool, error) {
	switch output {
	case "":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, usagef("--output is %q, it must be json", output)
	}
}

// printJSON prints a value as indented JSON.
func printJSON(cmd *cobra.Command, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	printf(cmd, "%s\n", text)
	return nil
}
