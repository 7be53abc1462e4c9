// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Program dradriver is a DRA driver for scenarios, built with upstream's helper for drivers. Its devices are
// names, which containers find in an environment variable: it publishes them in a ResourceSlice, and describes
// those of a prepared claim in a CDI file. Upstream's dra-example-driver, which does the same, is not published
// as a module.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

func main() {
	d := &driver{}
	flag.StringVar(&d.name, "name", "test.dra.example.com", "name of the driver")
	flag.StringVar(&d.node, "node", "", "name of the node")
	flag.StringVar(&d.data, "data", "", "directory of the driver: it has its socket, the file calls, and the files hold and unhealthy, which make calls wait and devices unhealthy")
	flag.StringVar(&d.cdi, "cdi", "/var/run/cdi", "directory of CDI files")
	registry := flag.String("registry", "", "the node agent's plugins_registry")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	flag.Parse()
	if err := d.run(*kubeconfig, *registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (d *driver) run(kubeconfig, registry string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(d.data, 0o700), os.MkdirAll(d.cdi, 0o755), os.MkdirAll(registry, 0o755)); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(d.data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, d.resources()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// devices are the names of the node's devices.
var devices = []string{"gpu-0", "gpu-1", "gpu-2", "gpu-3"}

func (d *driver) resources() resourceslice.DriverResources {
	var slice resourceslice.Slice
	for _, name := range devices {
		slice.Devices = append(slice.Devices, resourcev1.Device{Name: name})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.node: {Slices: []resourceslice.Slice{slice}}}}
}

// note appends a line to the file of calls.
func (d *driver) note(line string) error {
	file, err := os.OpenFile(filepath.Join(d.data, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}
