// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release writes a local repository of clusterctl with the providers Kindred and Cluster API's core, and the images of their
// managers.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

func main() {
	r, err := parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil {
		err = r.write()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	fmt.Printf("wrote %s\n", r.out)
}

func parse(args []string) (release, error) {
	var r release
	flags := pflag.NewFlagSet("release", pflag.ContinueOnError)
	flags.StringVar(&r.manager, "manager", "", "program of the manager")
	flags.StringVar(&r.kindred, "kindred", "", "program of Kindred that the image has beside it")
	flags.StringVar(&r.version, "version", "v0.1.0", "version of the providers")
	flags.StringVar(&r.kubernetes, "kubernetes-version", "", "version of Kubernetes that this Kindred has, such as v1.37.1")
	flags.StringVar(&r.image, "image", "ghcr.io/kindred-project/cluster-api-manager", "name of the image, without its tag, which is the version")
	flags.StringVar(&r.core, "core", "", "program of the manager of Cluster API's core, built from the module that this one requires")
	flags.StringVar(&r.coreImage, "core-image", "ghcr.io/kindred-project/cluster-api-core", "name of its image, without its tag, which is the version of Cluster API")
	flags.StringVar(&r.out, "out", "", "directory that is written")
	if err := flags.Parse(args); err != nil {
		return r, err
	}
	if r.manager == "" || r.core == "" || r.kindred == "" || r.kubernetes == "" || r.out == "" {
		return r, errors.New("--manager, --core, --kindred, --kubernetes-version and --out are needed")
	}
	return r, nil
}
