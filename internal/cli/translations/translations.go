// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package translations spares most processes the catalogue of kubectl's messages. Package kubectl loads it while it is initialized, which takes 30 ms
// of each start of the binary, and that of English has nothing but the messages themselves.
//
// It must be imported before k8s.io/kubectl/pkg/cmd: its initialization comes first because of its import path.
package translations

import (
	"cmp"
	"os"
	"strings"

	"k8s.io/kubectl/pkg/util/i18n"
)

func init() {
	if !isEnglish(os.Getenv) {
		return
	}
	if err := i18n.SetLoadTranslationsFunc(func() error { return nil }); err != nil {
		panic(err) // another package has loaded them before
	}
}

// isEnglish reports whether messages are in English, by the variables that kubectl reads, in its order.
func isEnglish(env func(string) string) bool {
	language := cmp.Or(env("LC_ALL"), env("LC_MESSAGES"), env("LANG"), "C")
	name, _, _ := strings.Cut(language, ".")
	return name == "C" || name == "POSIX" || name == "en" || strings.HasPrefix(name, "en_")
}
