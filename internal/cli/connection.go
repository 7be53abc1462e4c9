// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
)

// connection says which cluster a verb talks to, and in which namespace.
type connection struct {
	kubeconfig, context, namespace string
}

// addFlags adds the flags of kubectl's that say so. what is what the cluster is called in
// their descriptions.
func (c *connection) addFlags(cmd *cobra.Command, what string) {
	flags := cmd.Flags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of "+what)
	flags.StringVar(&c.context, "context", "", "context of "+what)
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace (default that of the context)")
}

// loader finds the cluster as "kindred kubectl" does; a plugin of kubectl's finds it as
// kubectl does.
func (c *connection) loader(cmd *cobra.Command) (clientcmd.ClientConfig, error) {
	path := c.kubeconfig
	meant := cmd.Flags().Changed(dataDirFlag)
	if path == "" && (meant || os.Getenv("KUBECONFIG") == "" && !isPlugin(cmd.Root())) {
		layout, err := layoutOf(cmd)
		if err != nil {
			return nil, err
		}
		path = layout.Kubeconfig()
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no cluster has run in %s; start one with \"kindred up\", or name another with --%s or --kubeconfig", layout.Root, dataDirFlag)
		}
	}
	return loaderOf(path, c.context, c.namespace), nil
}

// loaderOf reads a kubeconfig; without a path, as kubectl does.
func loaderOf(path, context, namespace string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: context, Context: clientcmdapi.Context{Namespace: namespace},
	})
}

func configOf(loader clientcmd.ClientConfig) (*rest.Config, error) {
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, err
	}
	// The server's advice on what it is sent is not about what the user typed.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.QPS = -1
	return config, nil
}

// mapperOf finds types by any of their names.
func mapperOf(config *rest.Config) (meta.RESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil), nil
}

// complete offers types, and names of the cluster's objects, as kubectl does.
func (c *connection) complete(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	loader, err := c.loader(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		if found, err := configOf(loader); err == nil {
			return found
		}
		return config
	})
	if namespace, _, err := loader.Namespace(); err == nil {
		flags.Namespace = &namespace
	}
	return completion.ResourceTypeAndNameCompletionFunc(cmdutil.NewFactory(flags))(cmd, args, toComplete)
}
