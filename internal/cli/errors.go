// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Exit statuses. `kindred kubectl` exits with the status of kubectl.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef returns a usageError that the command itself found, rather than cobra.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitStatus ends a command with an exit status of its own. Without an error nothing more is
// printed.
type exitStatus struct {
	code int
	err  error
}

func (e exitStatus) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e exitStatus) Unwrap() error { return e.err }

// started is the annotation of a command whose flags and arguments were validated.
const started = "started"

func markStarted(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[started] = "true"
}

// Execute runs a command line, prints an error in one line, and returns the exit status: 1 for an
// error, 2 for a usage error, or the command's own.
func Execute(root *cobra.Command) int {
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	text := oneLine(err)
	var own exitStatus
	if errors.As(err, &own) {
		if own.err != nil {
			fmt.Fprintln(root.ErrOrStderr(), "error: "+text)
		}
		return own.code
	}
	var usage usageError
	if cmd.Annotations[started] != "" && !errors.As(err, &usage) {
		fmt.Fprintln(root.ErrOrStderr(), "error: "+text)
		return exitError
	}
	fmt.Fprintf(root.ErrOrStderr(), "error: %s; see \"%s\"\n", text, helpFor(cmd))
	return exitUsage
}

// helpFor returns the command line that prints help about a command.
func helpFor(cmd *cobra.Command) string {
	if cmd.DisableFlagParsing { // --help is passed on to kubectl
		return cmd.Root().Name() + " help " + cmd.Name()
	}
	return cmd.CommandPath() + " --help"
}

// conflictPrefix matches the prefix of apierrors.NewConflict. Apart from the name of the object it
// adds nothing to the reason that follows.
var conflictPrefix = regexp.MustCompile(`Operation cannot be fulfilled on (\S+ "[^"]*"): `)

// oneLine joins the lines of an error, such as joined errors or cobra's suggestions.
func oneLine(err error) string {
	var text strings.Builder
	for line := range strings.Lines(conflictPrefix.ReplaceAllString(err.Error(), "$1: ")) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case text.Len() == 0:
		case strings.HasSuffix(text.String(), "?"):
			text.WriteString(" ")
		default:
			text.WriteString("; ")
		}
		text.WriteString(line)
	}
	return text.String()
}
