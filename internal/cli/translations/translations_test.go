// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package translations

import "testing"

func TestIsEnglish(t *testing.T) {
	for name, tt := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"none":               {nil, true},
		"C":                  {map[string]string{"LANG": "C"}, true},
		"C.UTF-8":            {map[string]string{"LANG": "C.UTF-8"}, true},
		"POSIX":              {map[string]string{"LC_ALL": "POSIX"}, true},
		"American":           {map[string]string{"LANG": "en_US.UTF-8"}, true},
		"German":             {map[string]string{"LANG": "de_DE.UTF-8"}, false},
		"German messages":    {map[string]string{"LANG": "en_US.UTF-8", "LC_MESSAGES": "de_DE.UTF-8"}, false},
		"English everywhere": {map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "en_GB.UTF-8"}, true},
		"a longer name":      {map[string]string{"LANG": "enm_GB"}, false},
	} {
		if got := isEnglish(func(key string) string { return tt.env[key] }); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
