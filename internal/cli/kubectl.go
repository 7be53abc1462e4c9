// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	// What kubeconfig files of other clusters may name as their way to log in.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	componentcli "k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	componentversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kindred-project/kindred/internal/datadir"
)

// newKubectl runs k8s.io/kubectl, untouched: every word after "kubectl" is its own, but
// for a leading --data-dir, and so are its output and exit status.
func newKubectl() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [--data-dir DIR] ...",
		Short: "Run kubectl against the cluster",
		Long: `Runs kubectl, as is. It talks to the cluster of the data directory, unless
--kubeconfig or, where no --data-dir is given, the environment variable KUBECONFIG
names another. --data-dir has to come before kubectl's own words.`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, layout, err := prepareKubectl(cmd, args)
			if err != nil {
				return err
			}
			return runKubectl(args, layout)
		},
		ValidArgsFunction: completeKubectl,
	}
}

// prepareKubectl takes out the words that are ours, and sees to it that kubectl and
// its plugins find the cluster.
func prepareKubectl(cmd *cobra.Command, args []string) ([]string, datadir.Layout, error) {
	path, err := cmd.Flags().GetString(dataDirFlag)
	if err != nil {
		return nil, datadir.Layout{}, err
	}
	given, args, err := takeDataDir(args)
	if err != nil {
		return nil, datadir.Layout{}, err
	}
	if given != "" {
		path = given
	}
	// A data directory on the command line is meant; one in the environment of
	// a shell may be forgotten.
	meant := given != "" || cmd.Flags().Changed(dataDirFlag)
	layout, err := newLayout(path)
	if err != nil {
		return nil, layout, err
	}
	if (meant || os.Getenv("KUBECONFIG") == "") && !namesKubeconfig(args) {
		err = os.Setenv("KUBECONFIG", layout.Kubeconfig())
	}
	return args, layout, err
}

// takeDataDir takes --data-dir off the front. Wherever else it stands, it belongs to
// a plugin, or to a command that is to run in a pod.
func takeDataDir(args []string) (path string, rest []string, err error) {
	if len(args) == 0 {
		return "", args, nil
	}
	if value, found := strings.CutPrefix(args[0], "--"+dataDirFlag+"="); found {
		return value, args[1:], nil
	}
	if args[0] != "--"+dataDirFlag {
		return "", args, nil
	}
	if len(args) == 1 {
		return "", nil, usagef("flag needs an argument: --%s", dataDirFlag)
	}
	return args[1], args[2:], nil
}

func namesKubeconfig(args []string) bool {
	for _, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig="):
			return true
		}
	}
	return false
}

// runKubectl does what kubectl's main does. Most errors end the process from within.
func runKubectl(args []string, layout datadir.Layout) error {
	words := append([]string{"kubectl"}, args...)
	// Verbosity counts before flags are parsed: plugins and preferences come first.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(words))
	if _, err := os.Stat(layout.Kubeconfig()); errors.Is(err, fs.ErrNotExist) && os.Getenv("KUBECONFIG") == layout.Kubeconfig() {
		sayWithoutCluster(layout)
	}
	command := kubectlCommand(words, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	if err := componentcli.RunNoErrOutput(command); err != nil {
		cmdutil.CheckErr(err)
	}
	return nil
}

func kubectlCommand(words []string, streams genericiooptions.IOStreams) *cobra.Command {
	command := kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{
		PluginHandler: kubectl.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     words,
		IOStreams:     streams,
		ConfigFlags:   kubectlFlags(streams),
	})
	command.SetArgs(words[1:])
	return command
}

// kubectlFlags are kubectl's own defaults, and its own user agent: k8s.io/client-go would take the
// name from os.Args, and audit would call kubectl "kindred".
func kubectlFlags(streams genericiooptions.IOStreams) *genericclioptions.ConfigFlags {
	version, _, _ := strings.Cut(componentversion.Get().GitVersion, "-")
	return genericclioptions.NewConfigFlags(true).
		WithDeprecatedPasswordFlag().
		WithDiscoveryBurst(300).
		WithDiscoveryQPS(50).
		WithWarningPrinter(streams).
		WithWrapConfigFn(func(config *rest.Config) *rest.Config {
			config.UserAgent = userAgent("kubectl", version)
			return config
		})
}

// nowhere is a server on which nothing can listen.
const nowhere = "127.0.0.1:0"

// sayWithoutCluster has kubectl say in one line that there has never been a cluster in
// this directory, when it asks for one. Left alone it would try whatever listens on
// localhost:8080, and complain several times.
func sayWithoutCluster(layout datadir.Layout) {
	clientcmd.ClusterDefaults.Server = "http://" + nowhere
	klog.SetLogger(logr.Discard())
	cmdutil.BehaviorOnFatal(func(message string, code int) {
		if strings.Contains(message, nowhere) {
			message = fmt.Sprintf("error: no cluster has run in %s; start one with \"kindred up\", or name another directory with --%s", layout.Root, dataDirFlag)
		}
		if message != "" {
			fmt.Fprintln(os.Stderr, strings.TrimSuffix(message, "\n"))
		}
		os.Exit(code)
	})
}

// completeKubectl asks kubectl's own completion.
func completeKubectl(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	args, _, err := prepareKubectl(cmd, args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	words := append([]string{"kubectl", cobra.ShellCompRequestCmd}, args...)
	var out bytes.Buffer
	command := kubectlCommand(append(words, toComplete), genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &bytes.Buffer{}})
	command.SetOut(&out)
	command.SetErr(&bytes.Buffer{})
	if err := command.Execute(); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return parseCompletions(out.String())
}

// parseCompletions reads what cobra's hidden completion command writes: a choice a
// line, and then a colon and a number that says how to take them.
func parseCompletions(text string) ([]string, cobra.ShellCompDirective) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := len(lines) - 1
	number, found := strings.CutPrefix(lines[last], ":")
	directive, err := strconv.Atoi(number)
	if !found || err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:last], cobra.ShellCompDirective(directive)
}
