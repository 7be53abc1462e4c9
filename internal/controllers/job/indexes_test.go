// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"testing"
)

func TestIndexesAreReadAndWrittenAsTheStatusHasThem(t *testing.T) {
	for _, test := range []struct {
		text        string
		completions int
		want        string
		count       int
	}{
		{"", 5, "", 0},
		{"0", 5, "0", 1},
		{"1,3-5,7", 10, "1,3-5,7", 5},
		{"0,1", 10, "0,1", 2},
		{"0,1,2", 10, "0-2", 3},
		{"2-4,5,6", 10, "2-6", 5},
		{"1,3-9", 5, "1,3,4", 3},
		{"7-9", 5, "", 0},
		{"x,1,4-2,3", 5, "1,3", 2},
	} {
		got := parseIndexes(test.text, test.completions)
		if got.String() != test.want || got.count() != test.count {
			t.Errorf("%q below %d is %q with %d indexes, want %q with %d", test.text, test.completions, got, got.count(), test.want, test.count)
		}
	}
}

func TestIndexesAreASet(t *testing.T) {
	a, b := parseIndexes("0-3,8", 20), parseIndexes("2-5,7-9,15", 20)
	if got := union(a, b).String(); got != "0-5,7-9,15" {
		t.Errorf("union %s", got)
	}
	if got := a.countShared(b); got != 3 {
		t.Errorf("countShared returned %d", got)
	}
	for index, want := range map[int]bool{0: true, 3: true, 4: false, 8: true, 9: false} {
		if a.contains(index) != want {
			t.Errorf("contains(%d) is %v", index, !want)
		}
	}
	for _, test := range []struct {
		set            string
		n, completions int
		want           []int
	}{
		{"", 2, 5, []int{0, 1}},
		{"0-3,8", 3, 20, []int{4, 5, 6}},
		{"1,3", 5, 5, []int{0, 2, 4}},
		{"0-4", 5, 5, nil},
		{"0-3", 0, 9, nil},
	} {
		if got := parseIndexes(test.set, 20).firstMissing(test.n, test.completions); !slices.Equal(got, test.want) {
			t.Errorf("first %d missing in %s below %d: %v, want %v", test.n, test.set, test.completions, got, test.want)
		}
	}
}
