// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	componentversion "k8s.io/component-base/version"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"

	"github.com/kindred-project/kindred/internal/join"
)

// connection has the flags that choose the cluster, the namespace and the user of a command.
type connection struct {
	kubeconfig, context, namespace string
	// as is the impersonated user; see
	// https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/.
	as       string
	asGroups []string
	asUID    string
}

// addFlags adds flags that kubectl has too. what names the cluster in their descriptions.
func (c *connection) addFlags(cmd *cobra.Command, what string) {
	flags := cmd.Flags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of "+what)
	flags.StringVar(&c.context, "context", "", "context of "+what)
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace (default that of the context)")
	flags.StringVar(&c.as, "as", "", "user to impersonate, or system:serviceaccount:NAMESPACE:NAME")
	flags.StringArrayVar(&c.asGroups, "as-group", nil, "group to impersonate; may be repeated")
	flags.StringVar(&c.asUID, "as-uid", "", "UID to impersonate")
}

// loader finds the cluster as "kindred kubectl" does, and in a kubectl plugin as kubectl does.
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
			if member, err := join.ReadMembership(layout.Membership()); err == nil && member.Server != "" {
				return nil, fmt.Errorf("this machine is a node of the cluster at %s; run the command on the server, or name a kubeconfig with --kubeconfig", member.Server)
			}
			return nil, fmt.Errorf("no cluster has run in %s; start one with \"kindred up\", or name another with --%s or --kubeconfig", layout.Root, dataDirFlag)
		}
	}
	return c.loaderOf(cmd, path, c.context, c.namespace)
}

// loaderOf reads a kubeconfig, or without a path the files that kubectl would read.
func (c *connection) loaderOf(cmd *cobra.Command, path, context, namespace string) (clientcmd.ClientConfig, error) {
	if c.as == "" && (len(c.asGroups) > 0 || c.asUID != "") {
		// client-go would silently ignore both and send requests with all rights.
		return nil, usagef("--as-group and --as-uid need --as")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	return namedLoader{
		anyLoader: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
			CurrentContext: context, Context: clientcmdapi.Context{Namespace: namespace},
			AuthInfo: clientcmdapi.AuthInfo{Impersonate: c.as, ImpersonateGroups: c.asGroups, ImpersonateUID: c.asUID},
		}),
		agent: userAgent("kindred", cmd.Root().Version),
	}, nil
}

// namedLoader loads a configuration and sets the user agent of its requests.
type namedLoader struct {
	anyLoader
	agent string
}

type anyLoader = clientcmd.ClientConfig

func (l namedLoader) ClientConfig() (*rest.Config, error) {
	config, err := l.anyLoader.ClientConfig()
	if err == nil {
		config.UserAgent = l.agent
	}
	return config, err
}

// userAgent returns the name of a program in audit logs and deletion records, in the form of
// rest.DefaultKubernetesUserAgent.
func userAgent(program, version string) string {
	commit := componentversion.Get().GitCommit
	return fmt.Sprintf("%s/%s (%s/%s) kubernetes/%.7s", program, version, runtime.GOOS, runtime.GOARCH, commit)
}

func configOf(loader clientcmd.ClientConfig) (*rest.Config, error) {
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, err
	}
	// Warnings of the server are about requests that the user did not write.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.QPS = -1
	return config, nil
}

// mapperOf returns a mapper that finds resource types by any of their names.
func mapperOf(config *rest.Config) (meta.RESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil), nil
}

// complete completes resource types and names of objects, as kubectl does.
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
