// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import "strings"

// Expand replaces each $(NAME) in s by the value of NAME. A name that lookup does not find is left as
// it is. $$ is an escaped $: $$(NAME) becomes the text $(NAME). This is the syntax of command, args,
// env and subPathExpr (core/v1 Container).
func Expand(s string, lookup func(name string) (value string, ok bool)) string {
	var out strings.Builder
	for {
		at := strings.IndexByte(s, '$')
		if at < 0 || at+1 == len(s) {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:at])
		s = s[at:]
		end := strings.IndexByte(s, ')')
		switch {
		case s[1] == '$':
			out.WriteByte('$')
			s = s[2:]
		case s[1] != '(' || end < 0:
			out.WriteByte('$')
			s = s[1:]
		default:
			value, ok := lookup(s[2:end])
			if !ok {
				value = s[:end+1]
			}
			out.WriteString(value)
			s = s[end+1:]
		}
	}
}
