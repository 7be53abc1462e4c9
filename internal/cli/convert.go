// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/convert"
)

// convertFlags has the flags of "kindred convert".
type convertFlags struct {
	files     []string
	recursive bool
	version   string
	output    string
}

func newConvert() *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert -f FILE... [--output-version GROUP/VERSION]",
		Short: "Rewrite manifests in another version of their API, without a cluster",
		Long: `Rewrites manifests in another version of their API. It needs no cluster. A manifest keeps
its meaning: what the old version defaults differently is written out. Comments at the head of
each document say what was written out, what cannot be carried over, and what else differs.

Without --output-version, each object is written in the preferred version of its kind. Objects
that do not have the version, objects of custom resources, and objects that are in the version
already are left as they are, with a comment on those that were not converted. Comments inside
of converted documents are not kept.

Besides the versions that "kindred up" can serve, it knows policy/v1beta1, batch/v1beta1,
networking.k8s.io/v1beta1, rbac.authorization.k8s.io/v1beta1, the StorageClasses of
storage.k8s.io/v1beta1, and the Ingresses and NetworkPolicies of extensions/v1beta1.

If a document is malformed, nothing is written.`,
		Example: `  kindred convert -f old.yaml > new.yaml
  kindred convert -f manifests/ -R --output-version apps/v1
  kubectl get hpa web -o yaml | kindred convert -f - --output-version autoscaling/v1 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.files, "filename", "f", nil, `file, directory with manifests, or "-" for standard input; may be repeated`)
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "read directories with all directories below them")
	flags.StringVar(&f.version, "output-version", "", "version to convert to, such as apps/v1 (default the preferred version of each kind)")
	flags.StringVarP(&f.output, "output", "o", "yaml", `"yaml", or "json" with the comments on standard error`)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *convertFlags) run(cmd *cobra.Command) error {
	if len(f.files) == 0 {
		return usagef("no manifest given: use -f with a file, a directory, or - for standard input")
	}
	if f.output != "yaml" && f.output != "json" {
		return usagef("--output is %q, it must be yaml or json", f.output)
	}
	version, err := schema.ParseGroupVersion(f.version)
	if err != nil {
		return usagef("--output-version: %w", err)
	}
	converter, err := convert.New()
	if err != nil {
		return err
	}
	if f.version != "" {
		if err := converter.CheckVersion(version); err != nil {
			return usagef("--output-version: %w", err)
		}
	}
	documents, err := convert.Read(f.files, f.recursive, cmd.InOrStdin())
	if err != nil {
		return err
	}
	out, err := converter.Documents(documents, version, f.output == "json")
	if err != nil {
		return err
	}
	return out.WriteTo(cmd.OutOrStdout(), cmd.ErrOrStderr())
}
