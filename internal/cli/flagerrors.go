// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError states an invalid value of a flag in one plain sentence. pflag quotes the parser's error,
// which names Go functions. Other errors of the command line are returned unchanged.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	return fmt.Errorf("--%s: %q %s", flag.Name, invalid.GetValue(), complaint(flag.Value.Type(), invalid.Unwrap()))
}

// complaint returns what is wrong with a value of a type, as the end of a sentence.
func complaint(kind string, cause error) string {
	number := strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") || kind == "count"
	switch {
	case number && errors.Is(cause, strconv.ErrRange):
		return "is out of range"
	case number:
		return "is not a whole number"
	case strings.HasPrefix(kind, "float"):
		return "is not a number"
	case kind == "bool":
		return "is neither true nor false"
	case kind == "duration":
		return "is not a duration; durations have units, as in 30s, 5m or 1h30m"
	case kind == "quantity":
		return "is not a quantity of bytes above 0, such as 512Mi or 2Gi"
	}
	return "is invalid: " + cause.Error()
}
