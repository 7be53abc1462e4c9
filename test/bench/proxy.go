// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/network"
)

// runProxy runs the part of a node that routes Services, as a process of its own like kube-proxy, until ctx is done.
func runProxy(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	rules, err := network.OpenRules(ctx, network.RuleOptions{Table: "kindred-bench"})
	if err != nil {
		return err
	}
	n, err := network.New(network.Options{
		Node: proxyNode, Rules: rules, Informers: shared,
		Events: &record.FakeRecorder{}, Clock: clock.RealClock{},
	})
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	return n.Run(ctx)
}
