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
	// Auth providers that kubeconfig files of other clusters may name.
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

	_ "github.com/kindred-project/kindred/internal/cli/translations"
	"github.com/kindred-project/kindred/internal/datadir"
)

// newKubectl returns a command that runs k8s.io/kubectl unchanged: all arguments after "kubectl"
// except a leading --data-dir, its output and its exit status are kubectl's.
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

// prepareKubectl removes Kindred's own arguments and makes kubectl and its plugins find the
// cluster.
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
	// A data directory on the command line overrides KUBECONFIG; one in the environment may be
	// left over.
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

// takeDataDir removes --data-dir from the front. Elsewhere it is an argument of a plugin, or of a
// command to run in a pod.
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

// runKubectl does what kubectl's main function does. kubectl itself exits on most errors.
func runKubectl(args []string, layout datadir.Layout) error {
	words := append([]string{"kubectl"}, args...)
	// Plugins and preferences need the verbosity before flags are parsed.
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

// kubectlFlags returns kubectl's defaults with kubectl's user agent: k8s.io/client-go takes the name
// from os.Args, and audit logs would call kubectl "kindred".
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

// nowhere is the address of a server that cannot exist.
const nowhere = "127.0.0.1:0"

// sayWithoutCluster makes kubectl print one line if no cluster has run in the data directory.
// Otherwise kubectl would try localhost:8080 and print several errors.
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

// completeKubectl uses kubectl's own completion.
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

// parseCompletions parses the output of cobra's hidden completion command: one choice a line, then
// a colon and a directive number.
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
